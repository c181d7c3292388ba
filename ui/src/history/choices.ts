export const FILTERS = ["status", "kind", "agent", "tool", "q"] as const;

export const CLOSED = [
  { value: "approved", label: "Approved" },
  { value: "edited", label: "Edited and approved" },
  { value: "rejected", label: "Rejected" },
  { value: "responded", label: "Answered" },
  { value: "expired", label: "Expired" },
  { value: "cancelled", label: "Cancelled" },
  { value: "superseded", label: "Superseded" },
];

export const KINDS = [
  { value: "approval", label: "Approvals" },
  { value: "question", label: "Questions" },
];
