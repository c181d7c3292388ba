-- What happened to requests, for statistics: how many were asked, decided by people (and how fast)
-- or expired, up to the end of each slot of 15 minutes; every time zone's day begins with one. So a
-- period of any length is the difference of two rows. See sayso.stores.sql.totals.

-- The requests that changed since they were counted, and what the totals have counted of each:
-- kind, tool, reviewers, slot, outcome, its slot, person and seconds taken; '' if nothing.
CREATE TABLE request_change (
    call TEXT COLLATE "C" PRIMARY KEY,
    counted TEXT NOT NULL
);
INSERT INTO request_change (call, counted) SELECT id, '' FROM call WHERE list_status <> '';

-- What is counted: what happened to the requests of a tool (took = -1), and decisions for or
-- against by person and seconds taken. The id is a hash of the rest.
CREATE TABLE request_series (
    id BIGINT PRIMARY KEY,
    what TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT NOT NULL,
    reviewers TEXT NOT NULL,
    person TEXT NOT NULL,
    took BIGINT NOT NULL
);

-- How often it happened up to the end of a slot; without a row, as often as before.
CREATE TABLE request_total (
    series BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    total BIGINT NOT NULL,
    PRIMARY KEY (series, slot)
);

-- The transaction that changes a request notes what was counted of it before. It has locked the
-- thread of the request, and so has the one that counts.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF tg_op = 'INSERT' THEN
        INSERT INTO request_change (call, counted) VALUES (new.id, '')
            ON CONFLICT (call) DO NOTHING;
    ELSE
        INSERT INTO request_change (call, counted)
            SELECT old.id, CASE WHEN old.list_status = '' THEN '' ELSE json_build_array(
                kind, tool, reviewers, old.created / 900000000,
                CASE WHEN old.list_status = 'expired' OR by_person THEN old.list_status ELSE '' END,
                CASE WHEN old.list_status = 'expired'
                    THEN coalesce(old.expires_at, old.created) / 900000000
                    WHEN by_person THEN old.decided_at / 900000000 ELSE 0 END,
                CASE WHEN by_person THEN coalesce(old.decided_by, '') ELSE '' END,
                CASE WHEN NOT by_person THEN -1 WHEN took < 1000000 THEN 0
                    WHEN took < 20000000 THEN took / 1000000
                    WHEN took < 60000000 THEN took / 5000000 * 5
                    WHEN took < 600000000 THEN took / 30000000 * 30
                    WHEN took < 3600000000 THEN took / 180000000 * 180
                    WHEN took < 86400000000 THEN took / 1800000000 * 1800
                    ELSE took / 21600000000 * 21600 END
            )::text END
            FROM (
                SELECT old.decided_at - old.created AS took, old.decided_at IS NOT NULL
                    AND old.list_status IN ('approved', 'edited', 'rejected', 'responded') AS by_person
            ) AS decision LEFT JOIN request_group ON request_group.id = old.request_group
            ON CONFLICT (call) DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER request_added AFTER INSERT ON call FOR EACH ROW
    WHEN (new.list_status <> '') EXECUTE FUNCTION note_change();
CREATE TRIGGER request_changed
    AFTER UPDATE OF list_status, request_group, decided_at, decided_by, expires_at ON call
    FOR EACH ROW WHEN (
        (old.list_status, old.request_group, old.decided_at, old.decided_by, old.expires_at)
        IS DISTINCT FROM
        (new.list_status, new.request_group, new.decided_at, new.decided_by, new.expires_at)
    ) EXECUTE FUNCTION note_change();

-- The oldest of a group, and how many of it are how old.
DROP INDEX call_open_age;
CREATE INDEX call_open_age ON call (request_group, list_status, created)
    WHERE list_status IN ('asked', 'in_doubt');
