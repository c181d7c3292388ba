import { Component, type ReactNode } from "react";
import { Button } from "../shared/components/Button";

/** Shows an error in place of a page that fails to render; the top bar keeps working. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state = { error: null as Error | null };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override render(): ReactNode {
    if (!this.state.error) return this.props.children;
    return (
      <main className="page">
        <div className="state state-error" role="alert">
          <p className="state-title">Something went wrong loading this page</p>
          <p className="muted mono">{this.state.error.message}</p>
          <Button onClick={() => location.reload()}>Reload</Button>
        </div>
      </main>
    );
  }
}
