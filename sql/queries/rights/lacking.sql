-- Say which of some rights the session's role lacks, on objects that are there.
--
-- Params:  objects ('database', this one; 'schema'; or a table of the schema; or a function of it without parameters,
--          with parentheses), privileges, columns (an array as text, each; '{}' asks for the table, or each of its columns)
-- Returns: rows (role, object, privilege, columns): role and object quoted for a GRANT
-- Note:    asked by oid: by name the server would refuse to answer a role that may not look into the schema. The database
--          is asked only while the schema is still to be made.
select
    quote_ident(current_user::text),
    case given.object
        when 'database' then 'database ' || quote_ident(current_database()::text)
        when 'schema' then 'schema ' || quote_ident(n.nspname::text)
        else coalesce('function ' || p.oid::regprocedure::text, quote_ident(n.nspname::text) || '.' || quote_ident(c.relname::text))
    end,
    given.privilege,
    given.columns::text[]
from unnest(%(objects)s::text[], %(privileges)s::text[], %(columns)s::text[])
    with ordinality as given (object, privilege, columns, place)
left join pg_catalog.pg_namespace n on n.nspname = btrim('asyncq.', '".')
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = given.object
left join pg_catalog.pg_proc p on p.pronamespace = n.oid and p.proname || '()' = given.object and p.pronargs = 0
where not case
    when given.object = 'database' then n.oid is not null or has_database_privilege(current_database(), given.privilege)
    when given.object = 'schema' then has_schema_privilege(n.oid, given.privilege)
    when p.oid is not null then has_function_privilege(p.oid, given.privilege)
    -- The only one that cannot be given for each column.
    when given.columns = '{}' and given.privilege = 'delete' then has_table_privilege(c.oid, given.privilege)
    when given.columns = '{}' then has_table_privilege(c.oid, given.privilege) or (
        select bool_and(has_column_privilege(c.oid, a.attnum, given.privilege))
        from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    )
    else (
        select bool_and(has_column_privilege(c.oid, wanted.name, given.privilege))
        from unnest(given.columns::text[]) as wanted (name)
    )
end
order by given.place
