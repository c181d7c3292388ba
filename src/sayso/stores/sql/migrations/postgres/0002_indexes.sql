-- Find the history of one call without reading its thread.
CREATE INDEX event_call ON event (call, seq) WHERE call <> '';
-- List the runs of one agent in one status without reading its others.
DROP INDEX run_agent;
CREATE INDEX run_agent ON run (agent, status, created, id);
