// Written by `sayso hook install opencode`. Runs the hook before each tool use, and throws, which
// denies, unless it answers.
import { spawn } from "node:child_process"

const SETTINGS = {}

function runHook(event, payload) {
  const [{ command, timeout }] = SETTINGS.hooks[event]
  return new Promise((resolve, reject) => {
    const hook = spawn("/bin/sh", ["-c", command], { stdio: ["pipe", "pipe", "pipe"] })
    const deny = (reason) => reject(new Error(reason))
    const timer = setTimeout(() => {
      hook.kill("SIGKILL")
      deny(`Sayso: not run: the hook took more than ${timeout} seconds`)
    }, timeout * 1000)
    let output = ""
    let problem = ""
    hook.stdout.setEncoding("utf8").on("data", (text) => (output += text))
    hook.stderr.setEncoding("utf8").on("data", (text) => (problem += text))
    hook.stdin.on("error", () => {})
    hook.on("error", (error) => deny(`Sayso: not run: ${error.message}`))
    hook.on("close", (code) => {
      clearTimeout(timer)
      if (code !== 0) return deny(problem.trim() || `Sayso: not run: the hook ended with ${code}`)
      try {
        const answer = output.trim() ? JSON.parse(output) : {}
        if (typeof answer !== "object" || answer === null) throw new Error("it is not an object")
        resolve(answer)
      } catch (error) {
        deny(`Sayso: not run: the hook's answer is not JSON (${error.message})`)
      }
    })
    hook.stdin.end(JSON.stringify({ hook_event_name: event, ...payload }))
  })
}

export const Sayso = async ({ directory }) => {
  const notices = new Map()

  function describe(input, args) {
    return {
      session_id: input.sessionID,
      cwd: directory,
      tool_name: input.tool,
      tool_use_id: input.callID,
      tool_input: args,
    }
  }

  return {
    "tool.execute.before": async (input, output) => {
      const answer = await runHook("tool.execute.before", describe(input, output.args))
      if (answer.decision && answer.decision !== "allow") throw new Error(answer.reason)
      if (answer.tool_input === undefined) return
      // OpenCode runs the tool with this very object.
      for (const name of Object.keys(output.args)) delete output.args[name]
      Object.assign(output.args, answer.tool_input)
      notices.set(input.callID, answer.notice)
    },
    "tool.execute.after": async (input, output) => {
      const notice = notices.get(input.callID)
      if (notice !== undefined) output.output = `${notice}\n${output.output}`
      notices.delete(input.callID)
      const payload = { ...describe(input, input.args), tool_response: output.output }
      await runHook("tool.execute.after", payload).catch(() => {})
    },
    "chat.message": async (input) => {
      await runHook("chat.message", { session_id: input.sessionID, cwd: directory }).catch(() => {})
    },
  }
}
