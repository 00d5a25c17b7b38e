-- Have partitions made that will be needed, and those dropped that are over age.
--
-- Params:  none
-- Returns: one row: how many changes somebody's lock prevented; they are to be tried again
-- Locks:   on the table and its partitions, none of them waited for longer than 100 ms: see the function asyncq.keep_history
select asyncq.keep_history()
