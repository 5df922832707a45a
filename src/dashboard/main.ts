import { useSignalEffect } from "@preact/signals"
import { h, render } from "preact"
import { useEffect } from "preact/hooks"
import { key } from "./api/http.ts"
import { caller, resumeSession } from "./api/session.ts"
import { Shell } from "./app/Shell.ts"
import { SignIn } from "./app/SignIn.ts"
import { listenToKeys } from "./app/shortcuts.ts"
import type { View } from "./dom/el.ts"
import { AdminPage } from "./pages/admin/AdminPage.ts"
import { CreatePage } from "./pages/create/CreatePage.ts"
import { EventsPage } from "./pages/EventsPage.ts"
import { NodesPage } from "./pages/NodesPage.ts"
import { RolloutsPage } from "./pages/rollouts/RolloutsPage.ts"
import { ServerPage } from "./pages/server/ServerPage.ts"
import { ServersPage } from "./pages/servers/ServersPage.ts"
import { connect, disconnect } from "./state/live.ts"
import { followNodes } from "./state/nodes.ts"
import { route } from "./state/router.ts"
import { followSettings } from "./state/settings.ts"

const Page = (): View => {
  const shown = route.value
  switch (shown.page) {
    case "servers":
      return h(ServersPage, {})
    case "server":
      return h(ServerPage, { key: shown.id, id: shown.id, tab: shown.tab })
    case "rollouts":
      return h(RolloutsPage, {})
    case "keys":
    case "quotas":
    case "webhooks":
    case "settings":
      return h(AdminPage, { part: shown.page })
    case "nodes":
      return h(NodesPage, {})
    case "events":
      return h(EventsPage, { tab: shown.tab })
    case "new":
      return h(CreatePage, {})
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
  return h(Shell, { children: h(Page, {}) })
}

const App = (): View => {
  // A key that the service no longer accepts ends the session.
  useSignalEffect(() => {
    if (key.value === undefined) caller.value = undefined
  })
  return key.value === undefined ? h(SignIn, {}) : h(Session, {})
}

const root = document.getElementById("app")
listenToKeys()
// The page has a note that it is loading.
root?.replaceChildren()
if (root !== null) render(h(App, {}), root)
