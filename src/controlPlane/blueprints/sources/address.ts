/** Addresses of git repositories that are safe to pass to `git`. No I/O. */
import { Result } from "effect"

/** The protocols that a source may use, as git's `GIT_ALLOW_PROTOCOL` names them. */
export type GitProtocol = "https" | "ssh" | "file"

export interface GitAddress {
  /** The address for git: without user and password if the protocol is https. */
  readonly url: string
  readonly protocol: GitProtocol
  /** The user of an https address, sent with the token. */
  readonly user: string | undefined
}

const EXPECTED = "write https://..., ssh://..., user@host:path, file:///... or an absolute path"

const parseUrl = (text: string): Result.Result<URL, string> =>
  Result.try({ try: () => new URL(text), catch: () => `no valid address; ${EXPECTED}` })

const https = (text: string): Result.Result<GitAddress, string> =>
  Result.flatMap(parseUrl(text), (url) => {
    if (url.password !== "") {
      return Result.fail("holds a password; name it with `token_env` or `token_file` instead")
    }
    if (url.search !== "" || url.hash !== "") return Result.fail("has a query or a fragment")
    const user = url.username === "" ? undefined : decodeURIComponent(url.username)
    url.username = ""
    return Result.succeed({ url: url.href, protocol: "https", user })
  })

/** A host or user that begins with `-` would be an option of ssh. */
const ssh = (text: string, user: string, host: string): Result.Result<GitAddress, string> =>
  /^[A-Za-z0-9_][\w.+-]*$|^$/.test(user) && /^(?:[A-Za-z0-9][\w.-]*|\[[0-9a-fA-F:.]+\])$/.test(host)
    ? Result.succeed({ url: text, protocol: "ssh", user: undefined })
    : Result.fail(`no valid host or user; ${EXPECTED}`)

const sshUrl = (text: string): Result.Result<GitAddress, string> => {
  const [, user = "", host = ""] = /^ssh:\/\/(?:([^@/]*)@)?([^/@]+?)(?::\d{1,5})?\/[^\s]+$/.exec(text) ?? []
  return user.includes(":") ? Result.fail("holds a password; ssh uses keys") : ssh(text, user, host)
}

/** Reads an address; fails with the reason if a source may not use it. */
export const gitAddress = (text: string): Result.Result<GitAddress, string> => {
  if (/[\p{Cc}\p{Zl}\p{Zp}]/u.test(text)) return Result.fail("contains control characters")
  if (/^https:\/\//i.test(text)) return https(text)
  if (/^ssh:\/\//i.test(text)) return sshUrl(text)
  if (/^file:\/\/\/./i.test(text) || /^\/./.test(text)) {
    return Result.succeed({ url: text, protocol: "file", user: undefined })
  }
  const scp = /^([^@/:\s]+)@([^/:\s]+|\[[^\]]+\]):([^-:\s][^\s]*)$/.exec(text)
  if (scp !== null) return ssh(text, scp[1] ?? "", scp[2] ?? "")
  return Result.fail(`no address that a source may have; ${EXPECTED}`)
}

/** Reads a branch, a tag or a full commit id, as `git check-ref-format` allows it: no option and no refspec. */
export const gitRef = (text: string): Result.Result<string, string> => {
  const sound =
    text.length <= 255 &&
    !/^[-/.]|[\p{Cc}\s~^:?*[\\]|\.\.|@\{|\/\/|\/\.|[/.]$|\.lock(?:\/|$)/u.test(text) &&
    text !== "@"
  return sound ? Result.succeed(text) : Result.fail("no name of a branch or tag, and no commit id")
}
