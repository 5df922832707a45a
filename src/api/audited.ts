/** The entry of each route in the audit log (spec 6.6). A route that is not in the table changes nothing. */
import type { AuditedRoute } from "../domain/AuditEntry.ts"

const route = (action: string, object: string, status = 200): AuditedRoute => ({ action, object, status })

/** By `group.endpoint`. */
export const auditedRoutes: Readonly<Record<string, AuditedRoute>> = {
  "nodes.drained": route("node.drain", "node"),
  "nodes.remove": route("node.delete", "node"),
  "servers.create": route("server.create", "server", 202),
  "servers.patch": route("server.patch", "server"),
  "servers.upgrade": route("server.upgrade", "server", 202),
  "servers.power": route("server.power", "server"),
  "servers.powerMany": route("server.power", "server"),
  "servers.commands": route("server.commands", "server", 204),
  "servers.console": route("server.console", "server", 101),
  "servers.reset": route("server.reset", "server", 202),
  "servers.reinstall": route("server.reinstall", "server", 202),
  "servers.remove": route("server.delete", "server"),
  "servers.removeMany": route("server.delete", "server"),
  "rollouts.create": route("rollout.create", "rollout", 201),
  "rollouts.pause": route("rollout.pause", "rollout"),
  "rollouts.resume": route("rollout.resume", "rollout"),
  "rollouts.abort": route("rollout.abort", "rollout"),
  "blueprints.reload": route("blueprints.reload", "blueprints"),
  "blueprints.softwareReload": route("software.reload", "software"),
  // Any key that reads can issue tickets without end.
  "events.ticket": { ...route("ticket.create", "ticket", 201), isShareable: true },
  "webhooks.create": route("webhook.create", "webhook", 201),
  "webhooks.patch": route("webhook.patch", "webhook"),
  "webhooks.remove": route("webhook.delete", "webhook"),
  "webhooks.test": route("webhook.test", "webhook"),
  "webhooks.replay": route("webhook.replay", "webhook"),
  "keys.create": route("key.create", "key", 201),
  "keys.revoke": route("key.revoke", "key"),
  "quotas.create": route("quota.create", "quota", 201),
  "quotas.patch": route("quota.patch", "quota"),
  "quotas.remove": route("quota.delete", "quota")
}
