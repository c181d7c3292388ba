/** Sign-in. A one-time link has its token after the #, so that it never appears in server logs. */

import { useEffect, useRef, useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { passkeysWork, signWithPasskey } from "../shared/passkey";
import { useResource } from "../shared/useResource";
import { navigate } from "../shared/router";

/** A path on this site. `//host` and `/\host` would lead to another one. */
export function safeNext(next: string | null): string {
  return next && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/inbox";
}

export default function LoginPage(): ReactElement {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  /** A token of someone other than the signed-in user: ask before switching. */
  const [other, setOther] = useState("");
  const tried = useRef(false);
  const ways = useResource("sign-ins", api.signIns).data;
  const next = () => safeNext(new URLSearchParams(location.search).get("next"));
  const enterWithPasskey = async () => {
    setBusy(true);
    setError("");
    try {
      await api.loginWithPasskey(await signWithPasskey(await api.passkeySignIn()));
      navigate(next(), { replace: true });
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
      setBusy(false);
    }
  };
  const enter = async (secret: string, switchUser = false) => {
    setBusy(true);
    setError("");
    setOther("");
    try {
      await api.login(secret.trim(), switchUser);
      navigate(next(), { replace: true });
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
      if (problem instanceof ApiError && problem.status === 409) setOther(secret);
      setBusy(false);
    }
  };
  useEffect(() => {
    const secret = decodeURIComponent(location.hash.slice(1)).replace(/^token=/, "");
    if (!secret || tried.current) return;
    tried.current = true;
    history.replaceState(null, "", location.pathname + location.search);
    void enter(secret);
  }, []);
  return (
    <main className="login">
      <form
        className="login-card"
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim()) void enter(token);
        }}
      >
        <svg width="36" height="36" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
          <rect className="brand-box" width="32" height="32" rx="8" />
          <path className="brand-tick" d="M9 16.5l5 5 9-11" />
        </svg>
        <h1>Sign in to Sayso</h1>
        {ways?.oidc && (
          <a className="button button-primary" href={`/api/login/oidc?page=${encodeURIComponent(next())}`}>
            Continue with your organization
          </a>
        )}
        {ways?.passkeys && passkeysWork && (
          <Button type="button" disabled={busy} onClick={() => void enterWithPasskey()}>
            Use a passkey
          </Button>
        )}
        <p className="muted">
          Open the link that <code>sayso serve</code> printed when it started, or paste a token here.
        </p>
        <label className="field">
          <span className="field-label">Token</span>
          <input
            type="password"
            autoComplete="off"
            spellCheck={false}
            value={token}
            aria-invalid={error ? true : undefined}
            aria-describedby={error ? "login-error" : undefined}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        {error && (
          <p id="login-error" className="field-error" role="alert">
            {error}
          </p>
        )}
        {other && (
          <Button type="button" onClick={() => void enter(other, true)}>
            Switch user
          </Button>
        )}
        <Button type="submit" tone="primary" disabled={busy || !token.trim()}>
          {busy ? "Signing in…" : "Sign in"}
        </Button>
        <p className="muted small">
          Create a token with <code>sayso token create NAME --role reviewer</code>.
        </p>
      </form>
    </main>
  );
}
