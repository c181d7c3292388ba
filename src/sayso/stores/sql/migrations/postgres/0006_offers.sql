-- Which worker is about to take a due run, so that the others leave it alone. Only a hint: a claim
-- is decided by the run's row. Not logged, so that it costs no sync, and empty after a crash.
CREATE UNLOGGED TABLE offer (
    run TEXT COLLATE "C" PRIMARY KEY,
    token BIGINT NOT NULL,
    worker TEXT NOT NULL,
    until BIGINT NOT NULL
);
-- Find the leases that lapsed without reading the runs that are due and that no process has.
DROP INDEX run_ready;
CREATE INDEX run_ready ON run (ready_at, owner) WHERE ready_at IS NOT NULL;
