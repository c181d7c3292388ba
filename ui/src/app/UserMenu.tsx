import { useEffect, useRef, useState, type ReactElement } from "react";
import { turnOff } from "../notifications/push";
import { api } from "../shared/api";
import { Icon } from "../shared/components/Icon";
import { Link } from "../shared/router";
import type { Me } from "../shared/types";

export function UserMenu({ me }: { me: Me }): ReactElement {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("mousedown", away);
    document.addEventListener("focusin", away);
    return () => {
      document.removeEventListener("mousedown", away);
      document.removeEventListener("focusin", away);
    };
  }, [open]);
  const leave = async () => {
    await turnOff().catch(() => undefined);
    await api.logout().catch(() => undefined);
    location.assign("/login");
  };
  return (
    <div
      className="menu"
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.preventDefault();
        setOpen(false);
        box.current?.querySelector("button")?.focus();
      }}
    >
      <button
        type="button"
        className="user"
        aria-expanded={open}
        aria-label={`Account: ${me.name}`}
        onClick={() => setOpen(!open)}
      >
        <Icon name="user" />
        <span className="user-name">{me.name}</span>
        <Icon name="chevronDown" size={12} />
      </button>
      {open && (
        <div className="menu-panel">
          <p className="menu-who">
            <strong>{me.name}</strong>
            <span className="muted">
              {me.role}
              {me.groups.length > 0 && ` · ${me.groups.join(", ")}`} · {me.assurance}
            </span>
          </p>
          {me.role !== "chat" && (
            <Link to="/grants" onClick={() => setOpen(false)}>
              <Icon name="key" /> Grants and refusals
            </Link>
          )}
          <Link to="/notifications" onClick={() => setOpen(false)}>
            <Icon name="bell" /> Notifications
          </Link>
          <Link to="/settings" onClick={() => setOpen(false)}>
            <Icon name="system" /> Settings
          </Link>
          {me.auth && (
            <Link to="/account" onClick={() => setOpen(false)}>
              <Icon name="shield" /> Your account
            </Link>
          )}
          {me.auth && (
            <button type="button" onClick={() => void leave()}>
              <Icon name="chevronLeft" /> Sign out
            </button>
          )}
          <p className="menu-foot muted">Sayso {me.version}</p>
        </div>
      )}
    </div>
  );
}
