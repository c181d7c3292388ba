-- What calls have in common for people who count: those of one group have the same reviewers, so
-- that a viewer sees all of a group, or only what they asked for or decided themselves.
CREATE TABLE request_group (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    risk TEXT NOT NULL,
    reviewers TEXT NOT NULL
);

-- Who decided a call, and when a person did, from its decision.
ALTER TABLE call ADD COLUMN request_group INTEGER NOT NULL DEFAULT 0;
ALTER TABLE call ADD COLUMN decided_by TEXT;
ALTER TABLE call ADD COLUMN decided_at INTEGER;
INSERT INTO request_group (id, kind, agent, tool, risk, reviewers)
    SELECT -min(n), kind, agent, tool, risk, reviewers
    FROM (
        SELECT call.n, search_key.kind, search_key.agent, search_key.tool, search_key.risk,
            coalesce(json_extract(terms, '$.reviewers'), '[]') AS reviewers
        FROM call JOIN search_key ON search_key.id = call.search_key
        WHERE list_status <> ''
    ) AS listed
    GROUP BY kind, agent, tool, risk, reviewers;
UPDATE call SET request_group = (
    SELECT request_group.id FROM search_key JOIN request_group
        USING (kind, agent, tool, risk)
    WHERE search_key.id = call.search_key
        AND reviewers = coalesce(json_extract(terms, '$.reviewers'), '[]')
) WHERE list_status <> '';
UPDATE call SET decided_by = json_extract(decision, '$[1]'), decided_at =
    CASE json_extract(decision, '$[3]') WHEN 'policy' THEN NULL ELSE json_extract(decision, '$[2]') END
    WHERE decision IS NOT NULL;

-- How many calls are open, by what they have in common. The transaction that moves a call counts it.
CREATE TABLE open_count (
    list_status TEXT NOT NULL,
    request_group INTEGER NOT NULL,
    search_key INTEGER NOT NULL,
    many INTEGER NOT NULL,
    PRIMARY KEY (list_status, request_group, search_key)
) WITHOUT ROWID;
INSERT INTO open_count (list_status, request_group, search_key, many)
    SELECT list_status, request_group, search_key, count(*) FROM call
    WHERE list_status IN ('asked', 'in_doubt') GROUP BY list_status, request_group, search_key;
CREATE TRIGGER call_opened AFTER INSERT ON call WHEN new.list_status IN ('asked', 'in_doubt') BEGIN
    INSERT INTO open_count (list_status, request_group, search_key, many)
        VALUES (new.list_status, new.request_group, new.search_key, 1)
        ON CONFLICT (list_status, request_group, search_key) DO UPDATE SET many = many + 1;
END;
CREATE TRIGGER call_moved AFTER UPDATE OF list_status, request_group, search_key ON call
WHEN (old.list_status, old.request_group, old.search_key)
    <> (new.list_status, new.request_group, new.search_key)
BEGIN
    INSERT INTO open_count (list_status, request_group, search_key, many)
        SELECT new.list_status, new.request_group, new.search_key, 1
        WHERE new.list_status IN ('asked', 'in_doubt')
        ON CONFLICT (list_status, request_group, search_key) DO UPDATE SET many = many + 1;
    UPDATE open_count SET many = many - 1
        WHERE list_status = old.list_status AND request_group = old.request_group
        AND search_key = old.search_key;
    DELETE FROM open_count
        WHERE list_status = old.list_status AND request_group = old.request_group
        AND search_key = old.search_key AND many = 0;
END;
CREATE TRIGGER call_deleted AFTER DELETE ON call WHEN old.list_status IN ('asked', 'in_doubt') BEGIN
    UPDATE open_count SET many = many - 1
        WHERE list_status = old.list_status AND request_group = old.request_group
        AND search_key = old.search_key;
    DELETE FROM open_count
        WHERE list_status = old.list_status AND request_group = old.request_group
        AND search_key = old.search_key AND many = 0;
END;

-- The oldest of a group, the first of it to expire, and what a person asked for.
DROP INDEX call_open;
DROP INDEX call_open_reviewers;
CREATE INDEX call_open_age ON call (request_group, list_status, n)
    WHERE list_status IN ('asked', 'in_doubt');
CREATE INDEX call_open_expiry
    ON call (request_group, list_status, coalesce(expires_at, 4611686018427387904))
    WHERE list_status IN ('asked', 'in_doubt');
CREATE INDEX call_open_requester ON call (requester, request_group, list_status)
    WHERE list_status IN ('asked', 'in_doubt') AND requester <> '';

-- Statistics are read from this index alone.
DROP INDEX call_list_status;
CREATE INDEX call_list_status
    ON call (list_status, n, created, request_group, decided_at, decided_by, requester, expires_at)
    WHERE list_status <> '';
