import { useEffect, useRef, useState } from "preact/hooks"
import { whyNot } from "../../api/session.ts"
import type { ServerStatus } from "../../api/types.ts"
import { onText, type View } from "../../dom/el.ts"
import { failed } from "../../state/notices.ts"
import { useLate } from "../../state/useLate.ts"
import { type ConsoleStream, followConsole } from "./consoleStream.ts"
import { type ConsoleTerminal, loadXterm, openTerminal } from "./terminal.ts"

const MOST = 50

const histories = new Map<string, ReadonlyArray<string>>()

const whySilent = (status: ServerStatus): string | undefined => {
  const lacks = whyNot("console") === undefined ? undefined : whyNot("commands")
  if (lacks !== undefined) return lacks
  return ["running", "starting", "stopping"].includes(status)
    ? undefined
    : `The server is ${status}; it reads no commands.`
}

/** The console of a server with a line for commands: the arrows bring earlier ones back. */
export const Console = ({ id, status }: { readonly id: string; readonly status: ServerStatus }): View => {
  const element = useRef<HTMLDivElement>(null)
  const stream = useRef<ConsoleStream>(undefined)
  const terminal = useRef<ConsoleTerminal>(undefined)
  const xterm = useLate(loadXterm)
  const [state, setState] = useState("Opening the console")
  const [text, setText] = useState("")
  /** How far the history is gone back; -1: not at all. */
  const [back, setBack] = useState(-1)

  useEffect(() => {
    if (element.current === null || xterm === undefined || xterm === "failed") return
    const opened = openTerminal(xterm, element.current)
    const followed = followConsole(id, {
      onReplace: opened.replace,
      onLines: opened.write,
      onState: setState
    })
    terminal.current = opened
    stream.current = followed
    return () => {
      followed.close()
      opened.close()
      terminal.current = undefined
    }
  }, [id, xterm])

  const silent = whySilent(status)
  const submit = async (event: Event) => {
    event.preventDefault()
    const line = text.trim()
    if (line === "" || silent !== undefined || stream.current === undefined) return
    const before = histories.get(id) ?? []
    histories.set(id, [line, ...before.filter((other) => other !== line)].slice(0, MOST))
    setText("")
    setBack(-1)
    terminal.current?.write([`\u001b[90m› ${line}\u001b[0m`])
    const failure = await stream.current?.send(line)
    if (failure !== undefined) failed("The command was not sent", failure)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0
    if (event.key === "Escape" && event.currentTarget instanceof HTMLElement) event.currentTarget.blur()
    if (step === 0) return
    event.preventDefault()
    const history = histories.get(id) ?? []
    const next = Math.max(-1, Math.min(history.length - 1, back + step))
    setBack(next)
    setText(history[next] ?? "")
  }
  return (
    <div class="card console">
      <div class="console-output" ref={element} />
      {xterm === "failed" && (
        <p class="problem" role="alert">{`The console could not be loaded. Load the page again.`}</p>
      )}
      {xterm !== "failed" && (state !== "" || whyNot("console") !== undefined) && (
        <p class="console-state" role="status">
          {whyNot("console") === undefined
            ? state
            : `${whyNot("console")} The stored lines are read every few seconds.`}
        </p>
      )}
      <form class="across console-input" onSubmit={(event: Event) => void submit(event)}>
        <span aria-hidden="true">›</span>
        <input
          aria-label="Command"
          placeholder={silent ?? "Type a command"}
          title={silent}
          readOnly={silent !== undefined}
          autocomplete="off"
          spellcheck={false}
          maxLength={4096}
          value={text}
          onInput={onText(setText)}
          onKeyDown={onKeyDown}
        />
        <button type="submit" class="ghost" aria-disabled={silent !== undefined || text === ""}>
          Send
        </button>
      </form>
    </div>
  )
}
