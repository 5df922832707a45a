import { useSignalEffect } from "@preact/signals"
import { render } from "preact"
import { useEffect } from "preact/hooks"
import { key } from "./api/http.ts"
import { caller, resumeSession } from "./api/session.ts"
import { Shell } from "./app/Shell.tsx"
import { SignIn } from "./app/SignIn.tsx"
import { listenToKeys } from "./app/shortcuts.tsx"
import type { View } from "./dom/el.ts"
import { AdminPage } from "./pages/admin/AdminPage.tsx"
import { CreatePage } from "./pages/create/CreatePage.tsx"
import { EventsPage } from "./pages/EventsPage.tsx"
import { NodesPage } from "./pages/NodesPage.tsx"
import { RolloutsPage } from "./pages/rollouts/RolloutsPage.tsx"
import { ServerPage } from "./pages/server/ServerPage.tsx"
import { ServersPage } from "./pages/servers/ServersPage.tsx"
import { connect, disconnect } from "./state/live.ts"
import { followNodes } from "./state/nodes.ts"
import { route } from "./state/router.ts"
import { followSettings } from "./state/settings.ts"

const Page = (): View => {
  const shown = route.value
  switch (shown.page) {
    case "servers":
      return <ServersPage />
    case "server":
      return <ServerPage key={shown.id} id={shown.id} tab={shown.tab} />
    case "rollouts":
      return <RolloutsPage />
    case "keys":
    case "quotas":
    case "webhooks":
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
    const ends = [followNodes(), followSettings(), disconnect]
    if (caller.value === undefined) void resumeSession()
    return () => {
      for (const end of ends) end()
    }
  }, [])
  return <Shell children={<Page />} />
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
