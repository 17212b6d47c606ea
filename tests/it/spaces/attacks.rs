//! The tables of the repository suite.

use std::fs;

use super::repositories::{Attack, HostileRepository, attack, link};

/// Keys whose value is a program, or leads to one.
const KEYS: &[&str] = &[
    "[diff]\n\texternal = {evil}",
    "[core]\n\tfsmonitor = {evil}",
    "[core]\n\tfsmonitor = true",
    "[core]\n\tpager = {evil}\n[pager]\n\tstatus = {evil}\n\tdiff = true\n\tlog = {evil}\n\tconfig = {evil}",
    "[core]\n\teditor = {evil}\n[sequence]\n\teditor = {evil}",
    "[core]\n\taskPass = {evil}\n[credential]\n\thelper = {evil}\n[credential \"https://example.org\"]\n\thelper = !{evil}",
    "[core]\n\tsshCommand = {evil}\n\tgitProxy = {evil}\n[ssh]\n\tvariant = simple",
    "[gpg]\n\tprogram = {evil}\n[gpg \"ssh\"]\n\tprogram = {evil}\n\tdefaultKeyCommand = {evil}\n[log]\n\tshowSignature = true",
    "[gpg]\n\tformat = x509\n[gpg \"x509\"]\n\tprogram = {evil}\n[log]\n\tshowSignature = true",
    "[alias]\n\tstatus = !{evil}\n\tdiff = !{evil}\n\tlog = !{evil}\n\tconfig = !{evil}\n\tls-files = !{evil}\n\trev-parse = !{evil}",
    "[uploadpack]\n\tpackObjectsHook = {evil}\n[receive]\n\tprocReceiveRefs = refs",
    "[core]\n\talternateRefsCommand = {evil}",
    "[merge \"x\"]\n\tdriver = {evil}\n[merge]\n\ttool = x\n[mergetool \"x\"]\n\tcmd = {evil}\n[difftool \"x\"]\n\tcmd = {evil}",
    "[interactive]\n\tdiffFilter = {evil}\n[trailer \"x\"]\n\tcommand = {evil}\n\tcmd = {evil}\n[tar \"x\"]\n\tcommand = {evil}",
    "[browser \"x\"]\n\tcmd = {evil}\n[web]\n\tbrowser = x\n[man \"x\"]\n\tcmd = {evil}\n[instaweb]\n\thttpd = {evil}",
    "[submodule]\n\trecurse = true\n[submodule \"x\"]\n\tpath = sub\n\turl = ext::{evil}\n\tupdate = !{evil}\n\tactive = true",
    "[remote \"origin\"]\n\turl = ext::{evil}\n\tvcs = {evil}\n\tuploadpack = {evil}\n\treceivepack = {evil}\n\tproxy = {evil}",
    "[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n[url \"ext::{evil} \"]\n\tinsteadOf = https://",
    "[gc]\n\tauto = 1\n[maintenance]\n\tauto = true\n\tstrategy = incremental\n[core]\n\tuntrackedCache = true\n\tsplitIndex = true",
    "[trace2]\n\teventTarget = {evil}\n\tnormalTarget = {evil}\n\tperfTarget = {evil}",
    "[init]\n\ttemplateDir = {evil}\n[core]\n\tcommentString = \";\"\n\tpackedGitWindowSize = 1\n[pack]\n\tthreads = 64\n[index]\n\tthreads = 64",
    "[sendemail]\n\tsmtpServer = {evil}\n[imap]\n\ttunnel = {evil}\n[http]\n\tcookieFile = {evil}\n[remote-hg]\n\tx = {evil}",
    "[diff]\n\ttool = x\n\tcolorMoved = zebra\n\tsubmodule = diff\n\trenames = copies\n[status]\n\tsubmoduleSummary = 100",
];

/// Attributes that lead to a program, with what the configuration says of it.
const DRIVERS: &[(&str, &str)] = &[
    ("* diff=x\n", "[diff \"x\"]\n\tcommand = {evil}"),
    ("* diff=x\n", "[diff \"x\"]\n\ttextconv = {evil}\n\tcachetextconv = true"),
    ("a.txt diff=x\n", "[diff \"x\"]\n\tcommand = /bin/sh {evil}"),
    ("* filter=x\n", "[filter \"x\"]\n\tclean = sh {evil}"),
    ("* filter=x\n", "[filter \"x\"]\n\tclean = evil/run %f"),
    ("* filter=x\n", "[filter \"x\"]\n\tclean = git -c alias.x='!{evil}' x"),
    ("* filter=x\n", "[FILTER \"x\"]\n\tCLEAN = {evil}"),
    ("* filter=x\n", "[filter.x]\n\tclean = {evil}"),
    ("* filter=x\n", "[filter \"x\"]\n\tclean = {evil}\n\tclean = cat\n\tclean = {evil}"),
    ("[attr]odd filter=x\n* odd\n", "[filter \"x\"]\n\tclean = {evil}"),
    ("* merge=x\n* filter=x ident working-tree-encoding=UTF-16\nc.txt -filter\n", "[merge \"x\"]\n\tdriver = {evil}"),
];

/// What would start something.
pub fn programs() -> Vec<Attack> {
    let named = |n: usize, text: &str| attack(format!("{n}: {}", text.replace(['\n', '\t'], " ")));
    let mut all: Vec<Attack> =
        KEYS.iter().enumerate().map(|(n, text)| named(n, text).config(format!("{text}\n"))).collect();
    for (n, (attributes, text)) in DRIVERS.iter().enumerate() {
        let encoded = attributes.contains("UTF-16");
        for place in [".git/info/attributes", "attributes"] {
            let said = match place {
                "attributes" => format!("{text}\n[core]\n\tattributesFile = {{sibling}}/../space/attributes\n"),
                _ => format!("{text}\n"),
            };
            let said = named(n, text).config(said).file(place, attributes);
            // A text that is not what its attribute says has no diff that could be compared.
            all.extend((!encoded || place == "attributes").then_some(said));
        }
    }
    for hook in ["post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout", "pre-auto-gc"] {
        all.push(
            attack(format!("hook {hook}"))
                .file(&format!("hooks/{hook}"), "")
                .config("[core]\n\thooksPath = hooks\n")
                .and(|repository| {
                    fs::create_dir_all(repository.space().join(".git/hooks")).expect("made");
                    for hook in fs::read_dir(repository.space().join("hooks")).expect("there").flatten() {
                        fs::copy(repository.space().join("evil/run"), hook.path()).expect("copied");
                        fs::copy(hook.path(), repository.space().join(".git/hooks").join(hook.file_name()))
                            .expect("copied");
                    }
                }),
        );
    }
    all.push(attack("a loader as the program").file(".git/info/attributes", "* diff=x\n").config(
        "[diff \"x\"]\n\tcommand = /lib64/ld-linux-x86-64.so.2 /bin/sh {evil}\n[filter \"y\"]\n\tclean = /lib64/ld-linux-x86-64.so.2\n",
    ));
    all.push(
        attack("what is missing is fetched")
            .config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\turl = ext::{evil} %S\n\tpromisor = true\n\tuploadpack = {evil}\n[protocol \"ext\"]\n\tallow = always\n")
            .and(|repository| {
                let blob = repository.git(&repository.space(), &["rev-parse", "HEAD:a.txt"]);
                fs::remove_file(repository.space().join(".git/objects").join(&blob[..2]).join(&blob[2..])).expect("removed");
            })
            .refused("git")
            .springs(),
    );
    all.push(
        attack("programs beside git")
            .file("git", "#!/bin/sh\nexec evil/run\n")
            .file("sh", "#!/bin/sh\nexec evil/run\n")
            .and(|repository| {
                for name in ["git", "sh", "cat"] {
                    let _ = fs::copy(repository.space().join("evil/run"), repository.space().join(name));
                }
            }),
    );
    all.push(attack("a submodule with a configuration of its own").and(|repository| {
        let space = repository.space();
        repository.git(&space, &["init", "-q", "module"]);
        repository.git(&space.join("module"), &["commit", "-q", "--allow-empty", "-m", "module"]);
        let head = repository.git(&space.join("module"), &["rev-parse", "HEAD"]);
        repository.git(&space, &["update-index", "--add", "--cacheinfo", &format!("160000,{head},module")]);
        let evil = space.join("evil/run").display().to_string();
        repository.git(&space.join("module"), &["config", "core.fsmonitor", &evil]);
        fs::write(space.join("module/dirty.txt"), "x").expect("written");
    }));
    all
}

/// Configurations that cannot be read whole.
pub fn configurations() -> Vec<Attack> {
    let odd = |name: &str, text: &[u8]| attack(name).config(text).refused("unreadable_repository");
    vec![
        odd("a byte that is no text in a value", b"[user]\n\tname = \xff\n"),
        odd("a byte that is no text in a remark", b"# \xfe\n"),
        odd("a NUL", b"[user]\n\tname = a\0b\n"),
        odd("a section that does not end", b"[user\n"),
        odd("a key without a section's end", b"[user \"x\n\ty = z\n"),
        odd("longer than it may be", &b"# 0123456789\n".repeat(30_000)),
        odd(
            "many filters",
            &(0..200).flat_map(|n| format!("[filter \"f{n}\"]\n\tclean = x\n").into_bytes()).collect::<Vec<_>>(),
        ),
        odd("a pipe that is included", b"[include]\n\tpath = ../pipe\n").and(|repository| {
            let made = std::process::Command::new("mkfifo").arg(repository.space().join("pipe")).status();
            assert!(made.expect("mkfifo").success());
        }),
        odd("a folder as the configuration", b"").and(|repository| {
            let config = repository.space().join(".git/config");
            fs::remove_file(&config).and_then(|()| fs::create_dir(&config)).expect("a folder");
        }),
        odd(
            "a pipe as the configuration of a worktree",
            b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n",
        )
        .and(|repository| {
            let made =
                std::process::Command::new("mkfifo").arg(repository.space().join(".git/config.worktree")).status();
            assert!(made.expect("mkfifo").success());
        }),
        odd("an include in a circle", b"[include]\n\tpath = config\n"),
        odd("an odd byte in what is included", b"[include]\n\tpath = more\n")
            .file(".git/more", b"[filter \"\xff\"]\n\tclean = {evil}\n"),
        // What can be read is gone by.
        attack("an include in the space")
            .config("[include]\n\tpath = more\n\tpath = nothing\n")
            .file(".git/more", "[user]\n\tname = x\n"),
        attack("an include that includes a filter")
            .config("[include]\n\tpath = more\n")
            .file(".git/more", "[include]\n\tpath = most\n")
            .file(".git/most", "[filter \"x\"]\n\tclean = {evil}\n")
            .file(".git/info/attributes", "* filter=x\n")
            .springs(),
    ]
}

/// What would lead to the private repository.
pub fn places() -> Vec<Attack> {
    let elsewhere = |name: &str| attack(name).refused("leads_elsewhere");
    vec![
        elsewhere("commondir").file(".git/commondir", "{sibling}/.git\n"),
        elsewhere("commondir, relative").file(".git/commondir", "../../sibling/.git\n"),
        elsewhere("commondir with a NUL").file(".git/commondir", "../../sibling/.git\0\n"),
        elsewhere("commondir as a link").and(|repository| link(repository, ".git/commondir", ".git/HEAD")),
        elsewhere("objects").and(|repository| link(repository, ".git/objects", ".git/objects")),
        elsewhere("refs").and(|repository| link(repository, ".git/refs", ".git/refs")),
        elsewhere("HEAD").and(|repository| link(repository, ".git/HEAD", ".git/HEAD")),
        elsewhere("index").and(|repository| link(repository, ".git/index", ".git/index")),
        elsewhere("config").and(|repository| link(repository, ".git/config", ".git/config")),
        elsewhere("packed-refs").and(|repository| link(repository, ".git/packed-refs", "secret.txt")),
        elsewhere("info").and(|repository| link(repository, ".git/info", ".git/info")),
        elsewhere("info/exclude").and(|repository| link(repository, ".git/info/exclude", "secret.txt")),
        elsewhere("info/attributes").and(|repository| link(repository, ".git/info/attributes", "secret.txt")),
        elsewhere("info/grafts").and(|repository| link(repository, ".git/info/grafts", "secret.txt")),
        elsewhere("shallow").and(|repository| link(repository, ".git/shallow", "secret.txt")),
        elsewhere("a branch").and(|repository| link(repository, ".git/refs/heads/main", ".git/refs/heads/main")),
        elsewhere("a pack").and(|repository| link(repository, ".git/objects/pack/pack-0.pack", "secret.txt")),
        elsewhere("a commit graph").and(|repository| link(repository, ".git/objects/info/commit-graph", "secret.txt")),
        elsewhere("a shared index").and(|repository| link(repository, ".git/sharedindex.0000", "secret.txt")),
        elsewhere("objects of one beginning").and(|repository| {
            let head = repository.git(&repository.sibling(), &["rev-parse", "HEAD"]);
            let folder = format!(".git/objects/{}", &head[..2]);
            link(repository, &folder, &folder);
        }),
        elsewhere("alternates").file(".git/objects/info/alternates", "{sibling}/.git/objects\n"),
        elsewhere("alternates, quoted").file(".git/objects/info/alternates", "\"{sibling}/.git/objects\"\n"),
        elsewhere("alternates, relative").file(".git/objects/info/alternates", "../../../sibling/.git/objects\n"),
        elsewhere("alternates of alternates").file(".git/objects/info/alternates", "../../lent\n").file("lent/info/alternates", "{sibling}/.git/objects\n"),
        elsewhere("a .git that names another").and(|repository| name_git(repository, "{sibling}/.git")),
        elsewhere("a .git that names a worktree").and(|repository| {
            repository.git(&repository.sibling(), &["worktree", "add", "-q", "../side"]);
            name_git(repository, "{sibling}/.git/worktrees/side");
        }),
        elsewhere("a .git that is a link").and(|repository| link(repository, ".git", ".git")),
        elsewhere("an include").config("[include]\n\tpath = {sibling}/.git/config\n"),
        elsewhere("an include, relative").config("[include]\n\tpath = ../../sibling/.git/config\n"),
        elsewhere("an include on a condition").config("[includeIf \"gitdir:/\"]\n\tpath = {sibling}/.git/config\n"),
        elsewhere("an include of a home").config("[include]\n\tpath = ~/.gitconfig\n"),
        elsewhere("an include through a link").config("[include]\n\tpath = ../link\n").and(|repository| link(repository, "link", ".git/config")),
        elsewhere("an include of an include").config("[include]\n\tpath = more\n").file(".git/more", "[include]\n\tpath = {sibling}/.git/config\n"),
        attack("another work tree").config("[core]\n\tworktree = {sibling}\n"),
        attack("lists of files").config("[core]\n\texcludesFile = {sibling}/secret.txt\n\tattributesFile = {sibling}/secret.txt\n[diff]\n\torderFile = {sibling}/secret.txt\n[commit]\n\ttemplate = {sibling}/secret.txt\n"),
        attack("names of people").config("[log]\n\tmailmap = true\n[mailmap]\n\tfile = {sibling}/secret.txt\n\tblob = HEAD:a.txt\n").and(|repository| link(repository, ".mailmap", "secret.txt")),
        attack("revisions to leave out").config("[blame]\n\tignoreRevsFile = {sibling}/secret.txt\n[fsck]\n\tskipList = {sibling}/secret.txt\n"),
        attack("rules that are links").and(|repository| {
            link(repository, ".gitignore", "secret.txt");
            link(repository, ".gitattributes", "secret.txt");
            link(repository, "sub/.gitignore", "secret.txt");
        }),
        attack("a folder that is a link").and(|repository| link(repository, "sub", "")),
        attack("a file that is a link").and(|repository| link(repository, "c.txt", "secret.txt")),
        attack("a submodule that is the private one").and(|repository| {
            let space = repository.space();
            let head = repository.git(&space, &["rev-parse", "HEAD"]);
            repository.git(&space, &["update-index", "--add", "--cacheinfo", &format!("160000,{head},module")]);
            fs::create_dir_all(space.join("module")).expect("made");
            let text = format!("gitdir: {}\n", repository.sibling().join(".git").display());
            fs::write(space.join("module/.git"), text).expect("written");
        }),
        attack("a branch of a name that leads up").and(|repository| {
            fs::write(repository.space().join(".git/HEAD"), "ref: refs/heads/../../../../sibling/.git/HEAD\n").expect("written");
        }).empty(),
        attack("single objects").and(|repository| {
            // Deeper than is looked at beforehand: what holds is that it cannot be read.
            let theirs = repository.sibling().join(".git/objects");
            for folder in fs::read_dir(&theirs).expect("objects").flatten().filter(|folder| folder.file_name().len() == 2) {
                let ours = repository.space().join(".git/objects").join(folder.file_name());
                fs::create_dir_all(&ours).expect("made");
                for object in fs::read_dir(folder.path()).expect("objects").flatten() {
                    let _ = std::os::unix::fs::symlink(object.path(), ours.join(object.file_name()));
                }
            }
            let tree = repository.git(&repository.sibling(), &["rev-parse", "HEAD^{tree}"]);
                let head = repository.git(&repository.space(), &["commit-tree", "-m", "borrowed", &tree]);
            fs::write(repository.space().join(".git/refs/heads/main"), head).expect("written");
        }).refused("git"),
    ]
}

fn name_git(repository: &HostileRepository, place: &str) {
    let git = repository.space().join(".git");
    fs::remove_dir_all(&git).expect("removed");
    let place = place.replace("{sibling}", &repository.sibling().display().to_string());
    fs::write(git, format!("gitdir: {place}\n")).expect("written");
}
