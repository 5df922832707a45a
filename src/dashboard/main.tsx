import { useSignalEffect } from "@preact/signals"
import { render } from "preact"
import { useEffect, useState } from "preact/hooks"
import { endedBecause, key } from "./api/http.ts"
import { caller, resumeSession, signIn } from "./api/session.ts"
import { Shell } from "./app/Shell.tsx"
import { listenToKeys } from "./app/shortcuts.tsx"
import { onText, type View } from "./dom/el.ts"
import { logo } from "./dom/icons.tsx"
import { AdminPage } from "./pages/admin/AdminPage.tsx"
import { BackupsPage } from "./pages/backups/BackupList.tsx"
import { CreatePage } from "./pages/create/CreatePage.tsx"
import { EventsPage } from "./pages/EventsPage.tsx"
import { cancel as cancelUploads } from "./pages/files/uploads.ts"
import { NodesPage } from "./pages/NodesPage.tsx"
import { RolloutsPage } from "./pages/rollouts/RolloutsPage.tsx"
import { SchedulesPage } from "./pages/schedules/SchedulesPage.tsx"
import { ServerPage } from "./pages/server/ServerPage.tsx"
import { DeletedPage } from "./pages/servers/DeletedPage.tsx"
import { ServersPage } from "./pages/servers/ServersPage.tsx"
import { connect, disconnect } from "./state/live.ts"
import { followNodes } from "./state/nodes.ts"
import { followOperations } from "./state/operations.ts"
import { route } from "./state/router.ts"
import { followSettings } from "./state/servers.ts"

const Page = (): View => {
  const shown = route.value
  switch (shown.page) {
    case "servers":
      return <ServersPage />
    case "server":
      return <ServerPage key={shown.id} {...shown} />
    case "deleted":
      return <DeletedPage />
    case "rollouts":
      return <RolloutsPage />
    case "schedules":
      return <SchedulesPage />
    case "backups":
      return <BackupsPage />
    case "keys":
    case "quotas":
    case "webhooks":
    case "targets":
    case "settings":
      return <AdminPage part={shown.page} />
    case "nodes":
      return <NodesPage />
    case "events":
      return <EventsPage tab={shown.tab} />
    case "new":
      return <CreatePage />
  }
}

const Session = (): View => {
  useEffect(() => {
    connect()
    const ends = [followNodes(), followSettings(), followOperations(), disconnect, cancelUploads]
    if (caller.value === undefined) void resumeSession()
    return () => {
      for (const end of ends) end()
    }
  }, [])
  return <Shell children={<Page />} />
}

const SignIn = (): View => {
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
          <code>admin.key</code>
          {" in its data folder. Others come from "}
          <code>muster keys create</code>.
        </p>
      </form>
    </main>
  )
}

const App = (): View => {
  // A key that the service no longer accepts ends the session.
  useSignalEffect(() => {
    if (key.value === undefined) caller.value = undefined
  })
  return key.value === undefined ? <SignIn /> : <Session />
}

const root = document.getElementById("app")
listenToKeys()
// The page has a note that it is loading.
root?.replaceChildren()
if (root !== null) render(<App />, root)
