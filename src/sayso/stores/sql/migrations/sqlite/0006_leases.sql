-- Find the leases that lapsed without reading the runs that are due and that no process has.
DROP INDEX run_ready;
CREATE INDEX run_ready ON run (ready_at, owner) WHERE ready_at IS NOT NULL;
