//! Command lines of the development program.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const SERVING: &[UserMistake] = user_mistakes! {
    "frobnicate" =>
        2: "'frobnicate'", "unrecognized", "subcommand";
    "serve" =>
        2: "required arguments", "not provided", "--static <FILE>";
    "serve {keys} --static {files}/nope" =>
        2: "{files}/nope", "No such file", "check --static";
    "serve {keys} --static {files}/directory" =>
        2: "{files}/directory", "Is a directory", "check --static";
    "serve {keys} --static {files}/nonsense.toml" =>
        2: "{files}/nonsense.toml, line 2", "key with no value", "`serve --help` shows a route";
    "serve {keys} --static {files}/incomplete.toml" =>
        2: "{files}/incomplete.toml, line 1", "missing field `pvc`", "`serve --help` shows a route";
    "serve {keys} --static {files}/unknown.toml" =>
        2: "{files}/unknown.toml, line 5", "unknown field `port`", "expected one of `namespace`, `pvc`, `url`, `content`";
    "serve {keys} --static {files}/path.toml" =>
        2: "{files}/path.toml: the route of PVC disk", "without a path", "needs a URL like https://HOST:PORT";
    "serve {keys} --static {files}/url.toml" =>
        2: "{files}/url.toml: the route of PVC disk", "needs a URL", "like https://HOST:PORT";
    "serve {keys} --static {files}/name.toml" =>
        2: "{files}/name.toml: the route of PVC UPPER_case", "a name that Kubernetes does not allow", "use small letters";
    "serve {keys} --static {files}/twice.toml" =>
        2: "{files}/twice.toml: the route of PVC disk", "is there twice", "remove one of them";
    "serve --static {files}/routes.toml --listen 127.0.0.1:0 --self-signed {proxy} --public-key {files}/nope" =>
        2: "{files}/nope", "No such file", "check the path";
    "serve --static {files}/routes.toml --listen 127.0.0.1:0 --self-signed {proxy} --public-key {files}/routes.toml" =>
        2: "{files}/routes.toml", "it must be one public key", "check --public-key";
    "serve --static {files}/routes.toml --listen 127.0.0.1:0 --self-signed {proxy} --public-key {proxy}/token.key" =>
        2: "{proxy}/token.key", "it must be one public key", "check --public-key";
    "serve --static {files}/routes.toml --listen 127.0.0.1:0 --public-key {proxy}/token.pub" =>
        2: "required arguments", "not provided", "--upload-ca <FILE>";
    "serve --static {files}/routes.toml --listen 127.0.0.1:0 --public-key {proxy}/token.pub --self-signed {files}/routes.toml" =>
        2: "{files}/routes.toml", "cannot write", "--self-signed";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --upload-ca {files}/nope" =>
        2: "{files}/nope", "No such file", "check the path";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --upload-cert {files}/nope" =>
        2: "{files}/nope", "No such file", "check the path";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --upload-key {files}/nope" =>
        2: "{files}/nope", "No such file", "check the path";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --tls-cert {proxy}/server.crt --tls-key {proxy}/server.key" =>
        2: "'--self-signed <DIR>'", "cannot be used with", "--tls-cert <FILE>";
    "serve {keys} --static {files}/routes.toml --listen nonsense" =>
        2: "'--listen <ADDRESS:PORT>'", "invalid value 'nonsense'", "use ADDRESS:PORT";
    "serve {keys} --static {files}/routes.toml --listen {address}" =>
        1: "{address}", "in use", "choose another address or port";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --max-uploads 0" =>
        2: "'--max-uploads <N>'", "invalid value '0'", "at least 1";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --max-uploads-per-client many" =>
        2: "'--max-uploads-per-client <N>'", "invalid value 'many'", "use a whole number";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --limit-rate 10MB" =>
        2: "'--limit-rate <BYTES>'", "invalid value '10MB'", "with an optional K, M or G";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 --limit-rate 0" =>
        2: "'--limit-rate <BYTES>'", "must not be zero", "leave the option out";
    "serve {keys} --static {files}/routes.toml --listen 127.0.0.1:0 -q -v" =>
        2: "'--quiet'", "cannot be used with", "'--verbose";
    "token" =>
        2: "required arguments", "not provided", "--key <FILE> --pvc <NAME>";
    "token --pvc disk" =>
        2: "required arguments", "not provided", "--key <FILE>";
    "token --pvc a/b --key {proxy}/token.key" =>
        2: "'--pvc <NAME>'", "invalid value 'a/b'", "has lower-case letters";
    "token --pvc disk --namespace UPPER --key {proxy}/token.key" =>
        2: "'--namespace <NAME>'", "invalid value 'UPPER'", "has lower-case letters";
    "token --pvc disk --key {files}/nope" =>
        2: "{files}/nope", "No such file", "check the path";
    "token --pvc disk --key {files}/routes.toml" =>
        2: "{files}/routes.toml", "it must be one RSA key in PEM", "give a private key (RSA, PEM)";
    "token --pvc disk --key {proxy}/token.pub" =>
        2: "{proxy}/token.pub", "it must be one RSA key in PEM", "give a private key (RSA, PEM)";
    "token --pvc disk --key {proxy}/token.key --lifetime 0" =>
        2: "'--lifetime <TIME>'", "invalid value '0'", "at least one second";
    "dev --dir {files}/routes.toml" =>
        2: "{files}/routes.toml/certs", "cannot write", "check the files";
    "completions tcsh" =>
        2: "'tcsh'", "invalid value", "bash, elvish, fish, powershell, zsh";
};
