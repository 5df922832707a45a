import { useState } from "preact/hooks"
import { endedBecause } from "../api/http.ts"
import { signIn } from "../api/session.ts"
import { onText, type View } from "../dom/el.ts"
import { logo } from "./logo.tsx"

/** Asks for the key of the tab. */
export const SignIn = (): View => {
  const [text, setText] = useState("")
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const submit = async (event: Event) => {
    event.preventDefault()
    if (isBusy || text.trim() === "") return
    setBusy(true)
    setProblem((await signIn(text.trim())) ?? "")
    setBusy(false)
  }
  const said = problem === "" ? endedBecause.value : problem
  return (
    <main class="sign-in">
      <form class="card" onSubmit={(event: Event) => void submit(event)}>
        <div class="sign-in-mark">{logo()}</div>
        <h1>Sign in to Muster</h1>
        <p class="muted">The key stays in this tab and ends with it.</p>
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          autofocus={true}
          value={text}
          aria-describedby="key-help key-problem"
          aria-invalid={problem !== ""}
          onInput={onText(setText)}
        />
        <p class="problem" id="key-problem" role="alert">
          {said}
        </p>
        <button class="primary wide" type="submit" aria-disabled={isBusy || text.trim() === ""}>
          <span>{isBusy ? "Signing in…" : "Sign in"}</span>
        </button>
        <p class="muted small" id="key-help">
          {"The first start of the service writes a key to "}
          <code>data/admin.key</code>
          {". Others come from "}
          <code>muster keys create</code>.
        </p>
      </form>
    </main>
  )
}
