/** Where backups are stored (spec 12.6): in a folder of the node of the server, or as objects of an S3 server. */
import { Schema } from "effect"
import { definitionIdPattern, NodeId } from "./Id.ts"
import { NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import { optionalInput } from "./optionalInput.ts"

/** The target that every service has: the folder `backups` of the node. */
export const NODE_TARGET = "node"

export const BackupTargetId = Schema.String.check(
  Schema.isPattern(definitionIdPattern, { expected: "the id of a target such as offsite" })
)

const isOrigin = (text: string): boolean => {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && `${url.origin}/` === url.href
}

const Credential = (most: number) =>
  Schema.String.check(
    Schema.isPattern(new RegExp(`^[\\x21-\\x7e]{1,${most}}$`, "u"), { expected: "a credential" })
  )

/** The fields of a target on an S3 server, without its secret. */
export const s3Fields = {
  endpoint: Schema.String.check(
    Schema.isMaxLength(300),
    Schema.makeFilter(isOrigin, { expected: "an http or https URL without user, path and query" })
  ),
  region: Schema.String.check(
    Schema.isPattern(/^[a-z0-9-]{1,64}$/u, { expected: "a region such as eu-west-1" })
  ),
  bucket: Schema.String.check(
    Schema.isPattern(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/u, {
      expected:
        "the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens, with a letter or digit at both ends"
    })
  ),
  /** The beginning of the keys of its objects, without slashes at its ends. */
  prefix: Schema.String.check(
    Schema.isPattern(/^[A-Za-z0-9_-]{1,64}(?:\/[A-Za-z0-9_-]{1,64}){0,7}$/u, {
      expected: "a prefix such as muster/backups"
    })
  ),
  access_key_id: Credential(256),
  /** Whether the name of the bucket is in the path of a URL, not in its host. */
  path_style: Schema.Boolean
} as const

export const SecretAccessKey = Credential(1024)

/** The settings of a target on an S3 server. */
export const S3Settings = Schema.Struct({
  type: Schema.Literal("s3"),
  endpoint: s3Fields.endpoint,
  region: s3Fields.region,
  bucket: s3Fields.bucket,
  prefix: Schema.optionalKey(s3Fields.prefix),
  access_key_id: s3Fields.access_key_id,
  path_style: Schema.optionalKey(s3Fields.path_style)
})

/** A folder of each node that makes backups in the target. The pattern refuses empty names, `.`, `..` and controls. */
export const TargetFolder = Schema.String.check(
  Schema.isMaxLength(1000),
  Schema.isPattern(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: no path of a message may have control characters
    /^(?:\/(?:[^/.\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*|\.[^/.\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*|\.\.[^/\u0000-\u001f\u007f]+))+$/u,
    { expected: "an absolute path such as /mnt/backups, without `.`, `..` and empty names" }
  )
)

/** The settings of a target that is a folder of the nodes. */
export const FolderSettings = Schema.Struct({ type: Schema.Literal("node"), folder: TargetFolder })

/** The settings of a target that a caller or a file has defined. */
export const TargetSettings = Schema.Union([FolderSettings, S3Settings])
export type TargetSettings = typeof TargetSettings.Type

/** Who defined a target: the service itself, a caller, or the file of `MUSTER_BACKUP_TARGETS`. */
const source = Schema.Literals(["service", "api", "file"])

/** A target in responses; its secret is never part of one. */
export const BackupTargetView = Schema.Union([
  Schema.Struct({ id: Schema.Literal(NODE_TARGET), type: Schema.Literal("node"), source }),
  Schema.Struct({
    id: BackupTargetId,
    ...FolderSettings.fields,
    source,
    created_at: Schema.optionalKey(TimeText)
  }),
  Schema.Struct({
    id: BackupTargetId,
    ...S3Settings.fields,
    source,
    created_at: Schema.optionalKey(TimeText)
  })
]).annotate({ identifier: "BackupTarget" })
export type BackupTargetView = typeof BackupTargetView.Type

/** Body of `POST /api/backup-targets`. */
export const CreateBackupTarget = Schema.Union([
  Schema.Struct({ id: BackupTargetId, ...FolderSettings.fields }),
  Schema.Struct({
    id: BackupTargetId,
    type: Schema.Literal("s3"),
    endpoint: s3Fields.endpoint,
    region: s3Fields.region,
    bucket: s3Fields.bucket,
    prefix: optionalInput(s3Fields.prefix),
    access_key_id: s3Fields.access_key_id,
    secret_access_key: SecretAccessKey,
    path_style: optionalInput(s3Fields.path_style)
  })
]).annotate({ identifier: "CreateBackupTarget" })
export type CreateBackupTarget = typeof CreateBackupTarget.Type

/** Body of `PATCH /api/backup-targets/:target`, with fields of its type; null removes the prefix. */
export const PatchBackupTarget = Schema.Struct({
  folder: Schema.optionalKey(TargetFolder),
  endpoint: Schema.optionalKey(s3Fields.endpoint),
  region: Schema.optionalKey(s3Fields.region),
  bucket: Schema.optionalKey(s3Fields.bucket),
  prefix: Schema.optionalKey(Schema.NullOr(s3Fields.prefix)),
  access_key_id: Schema.optionalKey(s3Fields.access_key_id),
  secret_access_key: Schema.optionalKey(SecretAccessKey),
  path_style: Schema.optionalKey(s3Fields.path_style)
}).annotate({ identifier: "PatchBackupTarget" })
export type PatchBackupTarget = typeof PatchBackupTarget.Type

/** Body of `POST /api/backup-targets/:target/test`. */
export const TestBackupTarget = Schema.Struct({ node_id: optionalInput(NodeId) }).annotate({
  identifier: "TestBackupTarget"
})

/** How a test of a target went on a node. */
export const TargetTest = Schema.Struct({
  ok: Schema.Boolean,
  /** The step that has failed. */
  step: Schema.optionalKey(Schema.Literals(["write", "read", "delete"])),
  reason: Schema.optionalKey(NodeText)
})
export type TargetTest = typeof TargetTest.Type

export const TestedBackupTarget = Schema.Struct({ node_id: NodeId, ...TargetTest.fields }).annotate({
  identifier: "TestedBackupTarget"
})
export type TestedBackupTarget = typeof TestedBackupTarget.Type

/** What a node needs to reach a target. It has the secret: it is part of a call only, never stored or logged. */
export const TargetAccess = Schema.Union([
  /** Without a folder: the one in the data folder of the node. */
  Schema.Struct({ type: Schema.Literal("node"), folder: Schema.optionalKey(TargetFolder) }),
  Schema.Struct({
    ...S3Settings.fields,
    secret_access_key: SecretAccessKey,
    /** Whether the node may connect to loopback, link-local and private addresses. */
    allow_private: Schema.Boolean
  })
])
export type TargetAccess = typeof TargetAccess.Type
export type S3Access = Extract<TargetAccess, { readonly type: "s3" }>

/** Numbers of backups that stay. */
export const KeptCount = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 }))

export const KeepRule = Schema.Struct({
  /** The newest ones. */
  last: Schema.optionalKey(KeptCount),
  /** The newest one of each of the latest hours, days, weeks and months, in UTC, that have one. */
  hourly: Schema.optionalKey(KeptCount),
  daily: Schema.optionalKey(KeptCount),
  weekly: Schema.optionalKey(KeptCount),
  monthly: Schema.optionalKey(KeptCount)
})
export type KeepRule = typeof KeepRule.Type

export const BackupRule = Schema.Struct({
  /** Patterns of paths that backups leave out (spec 10.4). */
  exclude: Schema.optionalKey(Schema.Array(Schema.String)),
  keep: Schema.optionalKey(KeepRule),
  target: Schema.optionalKey(BackupTargetId)
}).annotate({ identifier: "BackupRule" })
export type BackupRule = typeof BackupRule.Type
