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
    sealed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX thread_moved ON thread (id) WHERE seq > sealed;
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
    created INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX run_live ON run (thread) WHERE status IN ('running', 'paused');
CREATE INDEX run_ready ON run (ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX run_state ON run (status, created);
CREATE INDEX run_agent ON run (agent, created);
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
    seq INTEGER NOT NULL,
    mac TEXT NOT NULL,
    list_status TEXT NOT NULL,
    search_key INTEGER NOT NULL,
    UNIQUE (run, key)
);
CREATE INDEX call_list_status ON call (list_status, n, created) WHERE list_status <> '';
CREATE INDEX call_search_key ON call (search_key, list_status, n, created);
CREATE INDEX call_expiry ON call (coalesce(expires_at, 4611686018427387904), n)
    WHERE list_status IN ('asked', 'in_doubt');

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
    ends INTEGER,
    revoked INTEGER,
    created INTEGER NOT NULL,
    signature TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX grants_for ON grants (agent, tool_digest) WHERE revoked IS NULL;

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

-- Signed heads of the chains that moved; a chain of its own.
CREATE TABLE seal (
    n INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    heads TEXT NOT NULL,
    prev TEXT NOT NULL,
    hash TEXT NOT NULL,
    signature TEXT NOT NULL
);

-- People and agents with a token; only the token's hash is kept.
CREATE TABLE principal (
    id TEXT PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    person TEXT NOT NULL,
    role TEXT NOT NULL,
    groups TEXT NOT NULL,
    ends INTEGER,
    revoked INTEGER,
    created INTEGER NOT NULL,
    signature TEXT NOT NULL,
    mac TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX principal_person ON principal (person);

-- How far each reader of the events has come.
CREATE TABLE cursor (name TEXT PRIMARY KEY, pos TEXT NOT NULL) WITHOUT ROWID;

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
