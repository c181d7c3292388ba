-- Find the call that an agent elsewhere waits for, or was told to ask about again.
ALTER TABLE call ADD COLUMN caller TEXT NOT NULL DEFAULT '';
CREATE INDEX call_caller ON call (run, caller) WHERE caller <> '';
