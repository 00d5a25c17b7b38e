"""The only place that talks SQL: one function a statement, one file a statement under `sql/`; no policy."""
