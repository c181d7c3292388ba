-- Whether a chain has moved since its last seal. An index whose condition names seq would be
-- written by every commit; this one is written by the first commit after a seal.
ALTER TABLE thread ADD COLUMN moved INTEGER NOT NULL DEFAULT 1;
UPDATE thread SET moved = 0 WHERE seq <= sealed;
DROP INDEX thread_moved;
CREATE INDEX thread_moved ON thread (id) WHERE moved = 1;
