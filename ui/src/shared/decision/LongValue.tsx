import { useEffect, useRef, useState, type ReactElement, type ReactNode } from "react";
import { Button } from "../components/Button";
import { thousands } from "../format";
import { LONG_LINES } from "./values";

/** Marks the end of a text, and calls `onSeen` when it is on the screen. */
export function EndMark({ name, onSeen }: { name: string; onSeen: () => void }): ReactElement {
  const ref = useRef<HTMLParagraphElement>(null);
  const seen = useRef(onSeen);
  seen.current = onSeen;
  useEffect(() => {
    const watcher = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) seen.current();
    });
    watcher.observe(ref.current!);
    return () => watcher.disconnect();
  }, []);
  return (
    <p className="end-mark" ref={ref}>
      End of {name}
    </p>
  );
}

interface Props {
  name: string;
  lines: number;
  /** Called when its end is on the screen; the value then counts as read. */
  onSeen?: () => void;
  children: ReactNode;
}

/** A collapsible long value. */
export function LongValue({ name, lines, onSeen, children }: Props): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <div className={`long${open ? " long-open" : ""}${onSeen ? " long-due" : ""}`}>
      <div className="long-body" inert={!open}>
        {children}
        {open && onSeen && <EndMark name={name} onSeen={onSeen} />}
      </div>
      <Button small aria-expanded={open} onClick={() => setOpen(!open)}>
        {open
          ? `Collapse ${name}`
          : lines > LONG_LINES
            ? `Show all ${thousands(lines)} lines of ${name}`
            : `Show all of ${name}`}
      </Button>
    </div>
  );
}
