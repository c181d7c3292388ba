/** Ctrl+K: find requests, saved views, pages and actions by their words. */

import { useEffect, useId, useState, type KeyboardEvent, type ReactElement } from "react";
import { api } from "../shared/api";
import { Dialog } from "../shared/components/Dialog";
import { navigate } from "../shared/router";
import { useMe } from "../shared/session";
import { thousands } from "../shared/format";
import { namedShortcuts } from "../shared/shortcuts";
import { queryOf, useViews } from "../shared/views";
import type { Request } from "../shared/types";
import { pagesOf } from "./pages";

interface Entry {
  key: string;
  label: string;
  hint: string;
  run: () => void;
}

export function Palette({ onClose, actions }: { onClose: () => void; actions: [string, () => void][] }): ReactElement {
  const me = useMe();
  const views = useViews(me.role !== "chat").data ?? [];
  const [text, setText] = useState("");
  const [found, setFound] = useState<{ text: string; items: Request[] }>({ text: "", items: [] });
  const [at, setAt] = useState(0);
  const id = useId();
  const wanted = text.trim();
  useEffect(() => {
    if (me.role === "chat") return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      api.requests({ status: "pending", q: wanted || null, limit: 8 }, stop.signal).then(
        (page) => setFound({ text: wanted, items: page.items }),
        () => undefined,
      );
    }, wanted ? 150 : 0);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [wanted]);
  const fits = ({ label }: Entry) => wanted.toLowerCase().split(/\s+/).every((word) => label.toLowerCase().includes(word));
  // What can be done with the page as it was when the palette opened.
  const [here] = useState(namedShortcuts);
  const fixed: Entry[] = [
    ...here.map(({ key, label, run }) => ({ key: `key ${key}`, label, hint: key.toUpperCase(), run: () => run() })),
    ...views.map((view) => ({
      key: `view ${view.name}`,
      label: view.name,
      hint: `View, ${thousands(view.count)}`,
      run: () => navigate(`/inbox?${queryOf(view)}`),
    })),
    ...pagesOf(me).map((page) => ({ key: page.to, label: page.name, hint: "Page", run: () => navigate(page.to) })),
    ...actions.map(([label, run]) => ({ key: label, label, hint: "Action", run })),
  ];
  const requests = (found.text === wanted ? found.items : []).map((request) => ({
    key: request.id,
    label: request.shown.title,
    hint: request.shown.agent,
    run: () => navigate(`/inbox/${request.id}`),
  }));
  // Requests arrive later, and must not move what is selected.
  const entries = [...(wanted ? fixed.filter(fits) : fixed), ...requests];
  const current = Math.min(at, entries.length - 1);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by) setAt((current + by + entries.length) % entries.length);
    else if (event.key === "Enter") choose(entries[current]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <div className="palette">
        <input
          type="search"
          data-autofocus
          role="combobox"
          aria-label="Requests, views, pages and actions"
          aria-expanded
          aria-controls={id}
          aria-activedescendant={entries[current] && `${id}-${current}`}
          placeholder="Requests, views, pages, actions"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        <ul role="listbox" id={id} aria-label="Matches">
          {entries.map((entry, index) => (
            <li
              key={entry.key}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === current}
              ref={(element) => (index === current ? element?.scrollIntoView({ block: "nearest" }) : undefined)}
              onClick={() => choose(entry)}
            >
              <span>{entry.label}</span>
              <span className="muted small">{entry.hint}</span>
            </li>
          ))}
        </ul>
        {entries.length === 0 && <p className="muted">Nothing matches.</p>}
      </div>
    </Dialog>
  );
}
