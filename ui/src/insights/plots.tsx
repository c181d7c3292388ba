/** The plots of the page as SVG. None relies on colour alone. */

import type { ReactElement } from "react";
import { humanName } from "../shared/decision/values";
import type { Stats } from "../shared/types";
import { visible } from "../shared/visible";
import { columnPath, dayName, labelStep, percent, ticks } from "./figures";
import { Plot } from "./Plot";

const LEFT = 36;
const BOTTOM = 24;
const TOP = 18;
const HEIGHT = 220;

function Axis({ steps, width, height }: { steps: number[]; width: number; height: number }): ReactElement {
  const most = steps.at(-1)!;
  return (
    <g>
      {steps.map((step) => {
        const y = TOP + height * (1 - step / most);
        return (
          <g key={step}>
            <line className={step === 0 ? "axis" : "grid"} x1={LEFT} x2={width} y1={y} y2={y} />
            <text className="tick" x={LEFT - 8} y={y + 4} textAnchor="end">
              {step}
            </text>
          </g>
        );
      })}
    </g>
  );
}

interface BarPlotProps {
  title: string;
  unit: string;
  data: { label: string; count: number }[];
  note?: string;
  mark?: string;
}

export function BarPlot({ title, unit, data, note, mark = "bar" }: BarPlotProps): ReactElement {
  const steps = ticks(Math.max(0, ...data.map((one) => one.count)));
  const height = HEIGHT - TOP - BOTTOM;
  const total = data.reduce((sum, one) => sum + one.count, 0);
  return (
    <Plot
      title={title}
      note={note}
      description={`${total} ${unit}. ${data.map((one) => `${one.label}: ${one.count}`).join(", ")}.`}
      table={{ head: [title, unit], rows: data.map((one) => [one.label, one.count]) }}
      height={HEIGHT}
      draw={(width) => {
        const slot = (width - LEFT) / Math.max(1, data.length);
        const nth = labelStep(data.length, width - LEFT, 52);
        return (
          <>
            <Axis steps={steps} width={width} height={height} />
            {data.map((one, index) => {
              const size = (height * one.count) / steps.at(-1)!;
              const thick = Math.min(48, slot * 0.7);
              const x = LEFT + slot * (index + 0.5) - thick / 2;
              return (
                <g key={one.label}>
                  {one.count > 0 && (
                    <path className={mark} d={columnPath(x, TOP + height - size, thick, size)}>
                      <title>{`${one.label}: ${one.count}`}</title>
                    </path>
                  )}
                  {one.count > 0 && (
                    <text className="value" x={x + thick / 2} y={TOP + height - size - 4} textAnchor="middle">
                      {one.count}
                    </text>
                  )}
                  {index % nth === 0 && (
                    <text className="tick" x={x + thick / 2} y={HEIGHT - 6} textAnchor="middle">
                      {one.label}
                    </text>
                  )}
                </g>
              );
            })}
          </>
        );
      }}
    />
  );
}

const SERIES = [
  { key: "asked", name: "asked", mark: "bar-asked" },
  { key: "decided", name: "decided", mark: "bar" },
  { key: "expired", name: "expired", mark: "bar-expired" },
] as const;

export function DailyPlot({ days }: { days: Stats["per_day"] }): ReactElement {
  const steps = ticks(Math.max(0, ...days.flatMap((day) => [day.asked, day.decided, day.expired])));
  const height = HEIGHT - TOP - BOTTOM;
  const sums = SERIES.map(({ key, name }) => `${days.reduce((sum, day) => sum + day[key], 0)} ${name}`);
  return (
    <Plot
      title="Requests per day"
      description={`${sums.join(", ")} in ${days.length} days.`}
      table={{ head: ["Day", "Asked", "Decided", "Expired"], rows: days.map((d) => [dayName(d.day), d.asked, d.decided, d.expired]) }}
      legend={SERIES.map(({ name, mark }) => ({ name, mark }))}
      height={HEIGHT}
      draw={(width) => {
        const slot = (width - LEFT) / Math.max(1, days.length);
        const thick = Math.max(2, Math.min(14, (slot * 0.72) / 3));
        const nth = labelStep(days.length, width - LEFT);
        return (
          <>
            <Axis steps={steps} width={width} height={height} />
            {days.map((day, index) => (
              <g key={day.day}>
                <title>{`${dayName(day.day)}: ${SERIES.map(({ key, name }) => `${day[key]} ${name}`).join(", ")}`}</title>
                {SERIES.map(({ key, mark }, place) => {
                  const size = (height * day[key]) / steps.at(-1)!;
                  const x = LEFT + slot * (index + 0.5) + (place - 1.5) * (thick + 1);
                  return day[key] > 0 && <path key={key} className={mark} d={columnPath(x, TOP + height - size, thick, size, 2)} />;
                })}
                {(days.length - 1 - index) % nth === 0 && (
                  <text
                    className="tick"
                    x={index === days.length - 1 ? Math.min(LEFT + slot * (index + 0.5), width - 20) : LEFT + slot * (index + 0.5)}
                    y={HEIGHT - 6}
                    textAnchor="middle"
                  >
                    {dayName(day.day)}
                  </text>
                )}
              </g>
            ))}
          </>
        );
      }}
    />
  );
}

const OUTCOMES = [
  { key: "approved", name: "approved", mark: "bar" },
  { key: "edited", name: "edited", mark: "bar-edited" },
  { key: "responded", name: "answered", mark: "bar-answered" },
  { key: "rejected", name: "rejected", mark: "bar-rejected" },
  { key: "expired", name: "expired", mark: "bar-expired" },
] as const;

/** A dash if nothing was approved or rejected: questions are answered, so they have no rate. */
function rate(tool: Stats["tools"][number]): string {
  if (tool.rate === null) return "–";
  return tool.approved + tool.edited + tool.rejected === 0 ? "–" : percent(tool.rate, 1);
}

/** Outcomes per tool, with the share that was approved. */
export function ToolsPlot({ tools }: { tools: Stats["tools"] }): ReactElement {
  const row = 44;
  return (
    <Plot
      title="Approval rate by tool"
      note="Approved or edited, as a share of all decisions."
      description={tools.map((tool) => `${tool.tool}: ${rate(tool)} of ${tool.asked}`).join(", ") || "No decisions."}
      table={{
        head: ["Tool", "Rate", "Asked", "Approved", "Edited", "Answered", "Rejected", "Expired"],
        rows: tools.map((t) => [visible(t.tool), rate(t), t.asked, t.approved, t.edited, t.responded, t.rejected, t.expired]),
      }}
      legend={OUTCOMES.map(({ name, mark }) => ({ name, mark }))}
      height={Math.max(row, tools.length * row)}
      draw={(width) => {
        const room = width - 56;
        return (
          <>
            {tools.map((tool, index) => {
              const total = OUTCOMES.reduce((sum, { key }) => sum + tool[key], 0);
              let from = 0;
              const y = index * row;
              return (
                <g key={tool.tool}>
                  <text className="row-name" x={0} y={y + 14}>
                    <title>{visible(tool.tool)}</title>
                    {truncate(humanName(tool.tool), (room - 84) / 7.6)}
                  </text>
                  <text className="tick" x={room} y={y + 14} textAnchor="end">
                    {`${tool.asked} asked`}
                  </text>
                  <rect className="track" x={0} y={y + 21} width={room} height={12} rx={3} />
                  {OUTCOMES.map(({ key, name, mark }) => {
                    if (tool[key] === 0) return null;
                    const size = (room * tool[key]) / total;
                    const x = from;
                    from += size;
                    return (
                      <rect key={key} className={mark} x={x + 0.5} y={y + 21} width={Math.max(1, size - 1)} height={12} rx={2}>
                        <title>{`${visible(tool.tool)}: ${tool[key]} ${name}`}</title>
                      </rect>
                    );
                  })}
                  <text className="value" x={width} y={y + 31} textAnchor="end">
                    {rate(tool)}
                  </text>
                </g>
              );
            })}
          </>
        );
      }}
    />
  );
}

function truncate(text: string, room: number): string {
  return text.length > room ? `${text.slice(0, Math.max(1, Math.floor(room) - 1))}…` : text;
}

/** Stripe patterns that tell bars apart without colour. Defined once for all plots of the page. */
export function HatchPatterns(): ReactElement {
  return (
    <svg className="sr-only" width="0" height="0" aria-hidden="true" focusable="false">
      <defs>
        {["warn", "accent"].map((name) => (
          <pattern key={name} id={`hatch-${name}`} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect className={`hatch-back hatch-${name}`} width="5" height="5" />
            <rect className={`hatch-line hatch-${name}`} width="2.2" height="5" />
          </pattern>
        ))}
      </defs>
    </svg>
  );
}
