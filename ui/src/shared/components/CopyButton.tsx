import { useEffect, useState, type ReactElement } from "react";
import { Icon } from "./Icon";

export function CopyButton({ text, label }: { text: string; label: string }): ReactElement {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1_600);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
    } catch {
      // No permission. The text can still be selected.
    }
  };
  return (
    <button
      type="button"
      className="icon-button icon-button-small"
      aria-label={label}
      title={label}
      onClick={() => void copy()}
    >
      <Icon name={done ? "check" : "copy"} size={14} />
      <span className="sr-only" role="status">
        {done ? "Copied" : ""}
      </span>
    </button>
  );
}
