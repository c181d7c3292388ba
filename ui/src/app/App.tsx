/** The shell: sign-in state, routing, and the parts shared by all pages. */

import { lazy, Suspense, useEffect, useState, type ReactElement } from "react";
import { keepSubscribed } from "../notifications/push";
import { api } from "../shared/api";
import { LoadError, Skeleton } from "../shared/components/States";
import { Toasts } from "../shared/components/Toasts";
import { startLive } from "../shared/live";
import { useResource } from "../shared/useResource";
import { navigate, usePath } from "../shared/router";
import { MeContext, useMe } from "../shared/session";
import { isTyping, useShortcuts } from "../shared/shortcuts";
import { pagesOf } from "./pages";
import { ShortcutsDialog } from "./ShortcutsDialog";
import { TopBar } from "./TopBar";
import { ErrorBoundary } from "./ErrorBoundary";
import { Palette } from "./Palette";
import { useTheme } from "../shared/theme";
import { undoLast } from "../shared/undo";

const InboxPage = lazy(() => import("../inbox/InboxPage"));
const GrantsPage = lazy(() => import("../pages/GrantsPage"));
const AccountPage = lazy(() => import("../pages/AccountPage"));
const SettingsPage = lazy(() => import("../pages/SettingsPage"));
const NotificationsPage = lazy(() => import("../notifications/NotificationsPage"));
const PeoplePage = lazy(() => import("../people/PeoplePage"));
const LoginPage = lazy(() => import("../pages/LoginPage"));
const ChatPage = lazy(() => import("../chat/ChatPage"));
const RunsPage = lazy(() => import("../runs/RunsPage"));
const HistoryPage = lazy(() => import("../history/HistoryPage"));
const InsightsPage = lazy(() => import("../insights/InsightsPage"));

/** `/runs/run_1` is the page `runs` with the id `run_1`; an id may have slashes. */
function split(path: string): [string, string | undefined] {
  const [, page = "", ...rest] = path.split("/");
  return [page, rest.length ? decodeURIComponent(rest.join("/")) || undefined : undefined];
}

function Page({ path }: { path: string }): ReactElement {
  const me = useMe();
  const [page, id] = split(path);
  switch (page) {
    case "inbox":
      return <InboxPage id={id} />;
    case "grants":
      return <GrantsPage />;
    case "account":
      return <AccountPage />;
    case "settings":
      return <SettingsPage />;
    case "notifications":
      return <NotificationsPage id={id} />;
    case "people":
      return me.role === "admin" ? <PeoplePage id={id} /> : <AdminsOnly />;
    case "chat":
      return <ChatPage id={id} />;
    case "runs":
      return <RunsPage id={id} />;
    case "history":
      return <HistoryPage />;
    case "insights":
      return <InsightsPage />;
    default:
      return (
        <main className="page">
          <h1>Page not found</h1>
          <p className="muted">
            Go to the <a href="/inbox">inbox</a>.
          </p>
        </main>
      );
  }
}

function AdminsOnly(): ReactElement {
  const me = useMe();
  return (
    <main className="page">
      <h1>This page is for admins</h1>
      <p className="muted">
        You are signed in as {me.name}, {me.role}. Your sessions and passkeys are on the page of{" "}
        <a href="/account">your account</a>.
      </p>
    </main>
  );
}

function SignedIn({ path }: { path: string }): ReactElement | null {
  const me = useResource("me", api.me);
  const [help, setHelp] = useState(false);
  const [palette, setPalette] = useState(false);
  const [theme, setTheme] = useTheme();
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || document.querySelector("dialog[open]")) return;
      if (event.key === "z" && !event.shiftKey && !isTyping(event.target) && undoLast()) event.preventDefault();
      if (event.key !== "k") return;
      event.preventDefault();
      setPalette(true);
    };
    document.addEventListener("keydown", open);
    return () => document.removeEventListener("keydown", open);
  }, []);
  const out = me.error?.status === 401;
  const person = me.data?.name;
  useEffect(() => (person === undefined ? undefined : startLive(person)), [person]);
  useEffect(() => {
    if (person !== undefined) keepSubscribed(person).catch(() => undefined);
  }, [person]);
  useEffect(() => {
    if (out) navigate(`/login?next=${encodeURIComponent(location.pathname + location.search)}`, { replace: true });
  }, [out]);
  const home = me.data && pagesOf(me.data)[0]!.to;
  const elsewhere = home === "/chat" && !["chat", "account", "settings", "notifications"].includes(split(path)[0]);
  const stray = home !== undefined && (path === "/" || elsewhere);
  useEffect(() => {
    if (stray) navigate(home + location.search, { replace: true });
  }, [stray]);
  useShortcuts({
    ...Object.fromEntries((me.data ? pagesOf(me.data) : []).map((page) => [`g ${page.key}`, () => navigate(page.to)])),
    u: undoLast,
    "?": () => setHelp(true),
    "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(),
  });
  if (out) return null;
  if (me.error) return <LoadError what="your account" error={me.error} retry={me.reload} />;
  if (!me.data || stray) return <Skeleton label="Loading Sayso" />;
  return (
    <MeContext value={me.data}>
      {/* The page comes before the top bar in the DOM, so that Tab reaches its content first. */}
      <a className="skip" href="#pages">
        Skip to navigation
      </a>
      <div id="main" className="body" tabIndex={-1}>
        <ErrorBoundary key={split(path)[0]}>
          <Suspense fallback={<Skeleton rows={6} />}>
            <Page path={path} />
          </Suspense>
        </ErrorBoundary>
      </div>
      <TopBar path={path} onHelp={() => setHelp(true)} />
      {help && <ShortcutsDialog onClose={() => setHelp(false)} />}
      {palette && (
        <Palette
          onClose={() => setPalette(false)}
          actions={[
            [`Use the ${theme === "dark" ? "light" : "dark"} theme`, () => setTheme(theme === "dark" ? "light" : "dark")],
            ["Keyboard shortcuts", () => setHelp(true)],
            ["Settings", () => navigate("/settings")],
            ["Notifications", () => navigate("/notifications")],
            ["Your account", () => navigate("/account")],
          ]}
        />
      )}
    </MeContext>
  );
}

export function App(): ReactElement {
  const path = usePath();
  return (
    <>
      {path === "/login" ? (
        <Suspense fallback={null}>
          <LoginPage />
        </Suspense>
      ) : (
        <SignedIn path={path} />
      )}
      <Toasts />
    </>
  );
}
