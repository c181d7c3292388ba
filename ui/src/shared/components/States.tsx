import type { ReactElement, ReactNode } from "react";
import type { ApiError } from "../api";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";

export function EmptyState({
  icon,
  title,
  children,
}: {
  icon?: IconName;
  title: string;
  children?: ReactNode;
}): ReactElement {
  return (
    <div className="state">
      {icon && (
        <span className="state-icon">
          <Icon name={icon} size={20} />
        </span>
      )}
      <p className="state-title">{title}</p>
      {children}
    </div>
  );
}

/** `what` completes the title: "Could not load the inbox". */
export function LoadError({ error, retry, what }: { error: ApiError; retry: () => void; what: string }): ReactElement {
  return (
    <div className="state state-error" role="alert">
      <span className="state-icon">
        <Icon name="warning" size={20} />
      </span>
      <p className="state-title">Could not load {what}</p>
      <p className="muted">{error.message}</p>
      <Button onClick={retry}>Try again</Button>
    </div>
  );
}

/** Placeholder bars while content loads. */
export function Skeleton({ rows = 4, label = "Loading" }: { rows?: number; label?: string }): ReactElement {
  return (
    <div className="skeleton" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} className="skeleton-row" aria-hidden="true">
          <span />
          <span />
        </div>
      ))}
    </div>
  );
}

export function Notice({
  tone = "info",
  title,
  children,
}: {
  tone?: "info" | "warn" | "bad" | "good";
  title?: string;
  children?: ReactNode;
}): ReactElement {
  return (
    <div className={`notice notice-${tone}`}>
      <Icon name={tone === "good" ? "check" : tone === "info" ? "medium" : "warning"} />
      <div>
        {title && <p className="notice-title">{title}</p>}
        {children}
      </div>
    </div>
  );
}
