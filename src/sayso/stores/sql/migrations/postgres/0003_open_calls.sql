-- Count the open requests of each search key: those for everyone without reading a row, and those
-- with reviewers apart, because who may see them is in their terms.
CREATE INDEX call_open ON call (search_key, list_status, requester, expires_at, n)
    WHERE list_status IN ('asked', 'in_doubt') AND strpos(terms, '"reviewers":') = 0;
CREATE INDEX call_open_reviewers ON call (search_key, list_status, requester, expires_at, n)
    WHERE list_status IN ('asked', 'in_doubt') AND strpos(terms, '"reviewers":') > 0;
