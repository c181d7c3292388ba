-- Find the leases that lapsed, however many runs are due that no process has.
CREATE INDEX run_leased ON run (ready_at) WHERE owner IS NOT NULL;
