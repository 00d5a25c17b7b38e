-- Room on the row for what travels along with a job beside its arguments, such as the context of a trace.
-- oldest release: 0.1.0

alter table asyncq.jobs add column headers jsonb;

comment on column asyncq.jobs.headers is
    'What travels along beside the arguments, an object of texts: the W3C trace context of the defer. None, mostly.';
