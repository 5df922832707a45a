/**
 * The environment of system tools, without variables of the service. The search path has all folders in which
 * distributions install such tools.
 */
export const TOOL_ENV: Readonly<Record<string, string>> = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/wrappers/bin:/run/current-system/sw/bin",
  LC_ALL: "C"
}
