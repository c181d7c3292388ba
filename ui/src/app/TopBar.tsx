import { useEffect, useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { IconButton } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { thousands } from "../shared/format";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { Link, navigate, setQuery, useQuery } from "../shared/router";
import { useMe } from "../shared/session";
import { useTheme, type Theme } from "../shared/theme";
import { ConnectionStatus } from "./ConnectionStatus";
import { pagesOf } from "./pages";
import { UserMenu } from "./UserMenu";

/** How many pending requests this person may decide, formatted; empty until it is loaded. */
function useOpenCount(active: boolean): string {
  const open = useResource(active ? "count" : null, (signal) => api.groups({ status: "pending" }, signal));
  useChanges((events) => {
    if (events.some((event) => !["started", "recorded"].includes(event.type))) open.reload();
  }, 1_000);
  return open.data ? thousands(open.data.yours) : "";
}

function Search({ inbox }: { inbox: boolean }): ReactElement {
  const [query] = useQuery();
  const current = inbox ? (query.get("q") ?? "") : "";
  const [text, setText] = useState(current);
  useEffect(() => setText(current), [current]);
  useEffect(() => {
    if (!inbox || text === current) return;
    const timer = setTimeout(() => setQuery({ q: text || null }), 250);
    return () => clearTimeout(timer);
  }, [text, inbox, current]);
  return (
    <form
      role="search"
      className="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (inbox) setQuery({ q: text || null });
        else navigate(`/inbox?q=${encodeURIComponent(text)}`);
      }}
    >
      <Icon name="search" size={14} />
      <input
        type="search"
        data-search
        aria-label="Search requests"
        aria-keyshortcuts="/"
        placeholder="Search, or tool:pay risk:high older:1h"
        title="Words of titles, arguments, agents and people. tool: agent: risk: kind: older: newer: filter."
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const THEME_ICON = { system: "system", light: "sun", dark: "moon" } as const;

function ThemeButton(): ReactElement {
  const [theme, setTheme] = useTheme();
  return (
    <IconButton
      label={`Theme: ${theme}. Switch to ${NEXT[theme]}`}
      icon={THEME_ICON[theme]}
      onClick={() => setTheme(NEXT[theme])}
    />
  );
}

export function TopBar({ path, onHelp }: { path: string; onHelp: () => void }): ReactElement {
  const me = useMe();
  const decides = me.role !== "chat";
  const count = useOpenCount(decides);
  const page = "/" + (path.split("/")[1] || "inbox");
  return (
    <header className="topbar">
      <div className="topbar-brand">
        <Link to="/" className="brand">
          <svg width="20" height="20" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
            <rect className="brand-box" width="32" height="32" rx="8" />
            <path className="brand-tick" d="M9 16.5l5 5 9-11" />
          </svg>
          Sayso
        </Link>
        {me.environment && <span className="tag environment">{me.environment}</span>}
      </div>
      <nav id="pages" tabIndex={-1} aria-label="Pages" className="topbar-nav">
        {pagesOf(me).map(({ to, name }) => (
          <Link key={to} to={to} aria-current={page === to ? "page" : undefined}>
            {name}
            {to === "/inbox" && count !== "" && count !== "0" && (
              <span className="count">
                {count}
                <span className="sr-only"> pending</span>
              </span>
            )}
          </Link>
        ))}
      </nav>
      {decides ? <Search inbox={page === "/inbox"} /> : <span className="topbar-space" />}
      <div className="topbar-tools">
        <ConnectionStatus />
        <IconButton label="Keyboard shortcuts" icon="keyboard" className="wide-only" onClick={onHelp} />
        <ThemeButton />
        <UserMenu me={me} />
      </div>
    </header>
  );
}
