-- Find the history of one call without reading its thread.
CREATE INDEX event_call ON event (call, seq) WHERE call <> '';
