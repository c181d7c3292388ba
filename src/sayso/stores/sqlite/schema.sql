-- The tables of a store. Until version 0.1.0 is released, change them here; afterwards, add a file
-- with the next number (0010_name.sql), which both new and older stores run after this one.

-- What the store says of itself: its version, its incarnation, the key that signs for it.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One conversation: the lock of every write, and the head of its chain of events.
CREATE TABLE thread (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    messages INTEGER NOT NULL,
    messages_pruned TEXT NOT NULL,
    seq INTEGER NOT NULL,
    head TEXT NOT NULL,
    created INTEGER NOT NULL,
    mac TEXT NOT NULL,
    sealed INTEGER NOT NULL,
    moved INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
-- Whether a chain has moved since its last seal. An index whose condition names seq would be
-- written by every commit; this one is written by the first commit after a seal.
CREATE INDEX thread_moved ON thread (id) WHERE moved = 1;
CREATE INDEX thread_owner ON thread (owner, created) WHERE owner <> '';

-- The messages of a conversation, appended and never rewritten.
CREATE TABLE message (
    thread TEXT NOT NULL,
    seq INTEGER NOT NULL,
    run TEXT NOT NULL,
    body TEXT NOT NULL,
    mac TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
) WITHOUT ROWID;

-- One execution; ready_at makes the row its own entry in the queue.
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    thread TEXT NOT NULL,
    agent TEXT NOT NULL,
    agent_digest TEXT NOT NULL,
    requester TEXT NOT NULL,
    parent_call TEXT,
    status TEXT NOT NULL,
    stop TEXT NOT NULL,
    wake INTEGER NOT NULL,
    token INTEGER NOT NULL,
    owner TEXT,
    ready_at INTEGER,
    asked INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    running INTEGER NOT NULL,
    in_doubt INTEGER NOT NULL,
    snapshot TEXT,
    output TEXT,
    scope TEXT NOT NULL,
    rejections TEXT NOT NULL,
    created INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX run_live ON run (thread) WHERE status IN ('running', 'paused');
-- Find the leases that lapsed without reading the runs that are due and that no process has.
CREATE INDEX run_ready ON run (ready_at, owner) WHERE ready_at IS NOT NULL;
CREATE INDEX run_state ON run (status, created);
CREATE INDEX run_agent ON run (agent, status, created);
CREATE INDEX run_thread ON run (thread, created);

-- One call, from the asking to the result.
CREATE TABLE call (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    thread TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    args TEXT NOT NULL,
    args_hash TEXT NOT NULL,
    nonce TEXT NOT NULL,
    rev INTEGER NOT NULL,
    digest TEXT NOT NULL,
    terms TEXT NOT NULL,
    binds TEXT NOT NULL,
    title TEXT NOT NULL,
    note TEXT NOT NULL,
    preview TEXT NOT NULL,
    status TEXT NOT NULL,
    asked INTEGER NOT NULL,
    original TEXT,
    written TEXT,
    expires_at INTEGER,
    votes TEXT NOT NULL,
    decision TEXT,
    valid_until INTEGER,
    grant_id TEXT,
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL,
    result TEXT,
    created INTEGER NOT NULL,
    requester TEXT NOT NULL,
    effect_key TEXT NOT NULL,
    settles INTEGER NOT NULL,
    doubt TEXT,
    refusals TEXT NOT NULL,
    reminds_at INTEGER,
    escalates_at INTEGER,
    escalated INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL,
    mac TEXT NOT NULL,
    list_status TEXT NOT NULL,
    search_key INTEGER NOT NULL,
    caller TEXT NOT NULL DEFAULT '',
    request_group INTEGER NOT NULL DEFAULT 0,
    words TEXT NOT NULL DEFAULT '',
    decided_by TEXT,
    decided_at INTEGER,
    opened_at INTEGER,
    held_until INTEGER,
    UNIQUE (run, key)
);
-- Statistics are read from this index alone.
CREATE INDEX call_list_status
    ON call (list_status, n, created, request_group, decided_at, decided_by, requester, expires_at,
        opened_at)
    WHERE list_status <> '';
CREATE INDEX call_search_key ON call (search_key, list_status, n, created);
CREATE INDEX call_expiry ON call (coalesce(expires_at, 4611686018427387904), n)
    WHERE list_status IN ('asked', 'in_doubt');
CREATE INDEX call_held ON call (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX call_reminder ON call (reminds_at) WHERE list_status = 'asked' AND reminds_at IS NOT NULL;
CREATE INDEX call_escalation ON call (escalates_at)
    WHERE list_status = 'asked' AND escalates_at IS NOT NULL;
-- Find the call that an agent elsewhere waits for, or was told to ask about again.
CREATE INDEX call_caller ON call (run, caller) WHERE caller <> '';
-- The oldest of a group and how many of it are how old, the first of it to expire, and what a
-- person asked for.
CREATE INDEX call_open_age ON call (request_group, list_status, created)
    WHERE list_status IN ('asked', 'in_doubt');
CREATE INDEX call_open_expiry
    ON call (request_group, list_status, coalesce(expires_at, 4611686018427387904))
    WHERE list_status IN ('asked', 'in_doubt');
CREATE INDEX call_open_requester ON call (requester, request_group, list_status)
    WHERE list_status IN ('asked', 'in_doubt') AND requester <> '';

-- What calls have in common for people who search, and the words to find it by.
CREATE TABLE search_key (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    risk TEXT NOT NULL,
    words TEXT NOT NULL
);
CREATE INDEX search_key_agent ON search_key (agent);
CREATE INDEX search_key_tool ON search_key (tool);
CREATE INDEX search_key_risk ON search_key (risk, kind);
CREATE INDEX search_key_kind ON search_key (kind, risk);
CREATE TABLE search_word (word TEXT NOT NULL, search_key INTEGER NOT NULL, PRIMARY KEY (word, search_key))
    WITHOUT ROWID;

-- The words of one request's title, arguments, run and requester, which are also in call.words. Those
-- of one list are together, so that a word that is rare there is found at once.
CREATE TABLE call_word (
    list_status TEXT NOT NULL,
    word TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (list_status, word, n)
) WITHOUT ROWID;
CREATE TRIGGER call_words_added AFTER INSERT ON call WHEN new.words <> '' BEGIN
    INSERT INTO call_word (list_status, word, n)
        SELECT new.list_status, value, new.n FROM json_each('[' || replace(json_quote(substr(new.words, 2)), ' ', '","') || ']');
END;
CREATE TRIGGER call_words_changed AFTER UPDATE OF words, list_status ON call
WHEN (old.words, old.list_status) <> (new.words, new.list_status)
BEGIN
    DELETE FROM call_word WHERE list_status = old.list_status AND n = old.n AND word IN
        (SELECT value FROM json_each('[' || replace(json_quote(substr(old.words, 2)), ' ', '","') || ']'));
    INSERT INTO call_word (list_status, word, n)
        SELECT new.list_status, value, new.n FROM json_each('[' || replace(json_quote(substr(new.words, 2)), ' ', '","') || ']')
        WHERE new.words <> '';
END;
CREATE TRIGGER call_words_deleted AFTER DELETE ON call WHEN old.words <> '' BEGIN
    DELETE FROM call_word WHERE list_status = old.list_status AND n = old.n AND word IN
        (SELECT value FROM json_each('[' || replace(json_quote(substr(old.words, 2)), ' ', '","') || ']'));
END;

-- What a tool is to people and models, stored once however many calls it gets.
CREATE TABLE tool (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    schema TEXT NOT NULL,
    description TEXT NOT NULL,
    version TEXT NOT NULL,
    title TEXT NOT NULL
) WITHOUT ROWID;

-- Grants: approvals given in advance.
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    scope TEXT NOT NULL,
    given_by TEXT NOT NULL,
    uses_left INTEGER,
    steps TEXT NOT NULL,
    ends INTEGER,
    revoked INTEGER,
    created INTEGER NOT NULL,
    signature TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX grants_for ON grants (agent, tool_digest) WHERE revoked IS NULL;

-- Refusals: rejections that also count for equal calls.
CREATE TABLE refusal (
    id TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    run TEXT NOT NULL,
    thread TEXT NOT NULL,
    scope TEXT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    args_hash TEXT NOT NULL,
    rejected_by TEXT NOT NULL,
    at INTEGER NOT NULL,
    message TEXT NOT NULL,
    ends INTEGER,
    overturn TEXT NOT NULL,
    lifted INTEGER,
    lifted_by TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX refusal_of ON refusal (args_hash, agent, tool) WHERE lifted IS NULL;
CREATE INDEX refusal_at ON refusal (at, id) WHERE lifted IS NULL;
CREATE INDEX refusal_run ON refusal (run);

-- Facts, only ever added: one chain per thread.
CREATE TABLE event (
    pos INTEGER PRIMARY KEY,
    thread TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    run TEXT NOT NULL,
    call TEXT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT,
    digest TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (thread, seq)
);
-- Find the history of one call without reading its thread.
CREATE INDEX event_call ON event (call, seq) WHERE call <> '';

-- Signed heads of the chains that moved; a chain of its own.
CREATE TABLE seal (
    n INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    heads TEXT NOT NULL,
    prev TEXT NOT NULL,
    hash TEXT NOT NULL,
    signature TEXT NOT NULL
);

-- People and agents, with their rights.
CREATE TABLE person (
    name TEXT PRIMARY KEY,
    look TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    groups TEXT NOT NULL,
    mail TEXT NOT NULL,
    origin TEXT NOT NULL,
    status TEXT NOT NULL,
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    since INTEGER NOT NULL,
    stand_in TEXT NOT NULL,
    away_until INTEGER,
    notices TEXT NOT NULL,
    signature TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX person_stand_in ON person (stand_in) WHERE stand_in <> '';

-- Tokens, sign-in links and sessions; only the hash of the secret is kept.
CREATE TABLE credential (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    person TEXT NOT NULL,
    kind TEXT NOT NULL,
    role TEXT NOT NULL,
    assurance TEXT NOT NULL,
    opened_by TEXT NOT NULL,
    device TEXT NOT NULL,
    public_key TEXT NOT NULL,
    signed_in INTEGER NOT NULL,
    created INTEGER NOT NULL,
    ends INTEGER,
    idle INTEGER,
    last_used INTEGER NOT NULL,
    revoked INTEGER,
    signature TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX credential_person ON credential (person);

-- How far each reader of the events has come.
CREATE TABLE cursor (name TEXT PRIMARY KEY, pos TEXT NOT NULL) WITHOUT ROWID;

-- Messages to people about requests. They give no right (SECURITY.md says what changing one does).
CREATE TABLE delivery (
    id TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    target TEXT NOT NULL,
    person TEXT NOT NULL,
    request TEXT NOT NULL,
    digest TEXT NOT NULL,
    step TEXT NOT NULL,
    created INTEGER NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    nonce TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at INTEGER,
    error TEXT NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (channel, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX delivery_request ON delivery (request) WHERE request <> '';

-- The processes that have the store open, with their last heartbeat. They give no right.
CREATE TABLE process (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    program TEXT NOT NULL,
    version TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    keys TEXT NOT NULL,
    row_keys TEXT NOT NULL,
    started INTEGER NOT NULL,
    seen INTEGER NOT NULL
) WITHOUT ROWID;

-- Effects that are unique by their key: which call has had each, or may have had it.
CREATE TABLE effect (
    key TEXT PRIMARY KEY,
    call TEXT NOT NULL,
    run TEXT NOT NULL,
    thread TEXT NOT NULL,
    agent TEXT NOT NULL,
    requester TEXT NOT NULL,
    created INTEGER NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;

-- What the limits of rules and grants have counted.
CREATE TABLE budget (
    key TEXT PRIMARY KEY,
    limits TEXT NOT NULL,
    keep INTEGER NOT NULL,
    entries TEXT NOT NULL,
    until INTEGER NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;

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

-- How many calls are open, by what they have in common. The transaction that moves a call counts it.
CREATE TABLE open_count (
    list_status TEXT NOT NULL,
    request_group INTEGER NOT NULL,
    search_key INTEGER NOT NULL,
    many INTEGER NOT NULL,
    PRIMARY KEY (list_status, request_group, search_key)
) WITHOUT ROWID;
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
