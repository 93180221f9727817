//! `allow` rules and flags: a rule for the first words of a program does not allow a flag, a letter, a
//! response file or an inline program that would run something else.

use minke_policy::{PolicyContext, PolicyRule, Posture, RuleLayer, RuleSet, SandboxBackend, judge_action};
use minke_record::{Action, Judgement, PolicyVerdict, Scope};

fn parse_rules(text: &str) -> RuleSet {
    RuleSet::parse(RuleLayer::User, "policy.toml", text).expect("the rules are good").0
}

fn judge_line(rules: &RuleSet, line: &str) -> PolicyVerdict {
    let scope = Scope::writable("/w");
    let context = PolicyContext {
        rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    judge_action(
        &context,
        &Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() },
    )
}

/// Returns rules that allow only these first words.
fn allow_rule(words: &str) -> RuleSet {
    parse_rules(&format!("rule = [{}]", PolicyRule::for_command(Judgement::Allow, words).to_toml_line()))
}

/// For each rule: lines that it allows, and lines that it does not.
const PROGRAMS: &[(&str, &[&str], &[&str])] = &[
    (
        "tar",
        &["tar tf a.tar", "tar -czf out.tgz src", "tar xzf a.tgz", "tar cf a.tar src"],
        &[
            "tar cfI x ./z .",
            "tar cIf ./z x .",
            "tar xfF a.tar ./z",
            "tar -I ./z -cf x .",
            "tar -cI ./z -f x .",
            "tar --use-compress-program=./z -cf x .",
            "tar --use-comp=./z -cf x .",
            "tar --to-command=./z -xf x",
            "tar --checkpoint-action=exec=./z -cf x .",
            "tar --checkpoint=1 --checkpoint-a exec=./z -cf x .",
            "tar --info-script=./z -xf x",
            "tar --new-volume-script ./z -cMf x .",
            "tar -F ./z -xf x",
            "tar --rsh-command=./z -cf h:x .",
            "tar --rmt-command=./z -cf h:x .",
            "tar cf host:x.tar .",
            "tar xfP x",
            "tar xfC x sub",
            "tar cfT x list",
        ],
    ),
    (
        "bsdtar",
        &["bsdtar tf a.tar"],
        &["bsdtar cf x @other.tar", "bsdtar --use-compress-program ./z -cf x .", "bsdtar cfI x ./z"],
    ),
    (
        "gcc",
        &["gcc -c a.c", "gcc -O2 -Wall -g a.c", "gcc -std=c11 -Iinclude -DX=1 a.c"],
        &[
            "gcc @resp",
            "gcc -wrapper ./x a.c",
            "gcc -fplugin=./x.so a.c",
            "gcc -B. a.c",
            "gcc -B . a.c",
            "gcc -specs=./s a.c",
            "gcc --specs=./s a.c",
            "gcc -Wl,@x a.c",
            "gcc -Wl,-plugin,./x a.c",
            "gcc -Xlinker @x a.c",
            "gcc -Wa,@x a.c",
            "gcc -Wp,-MD,x a.c",
            "gcc -iplugindir=. a.c",
            "gcc -load ./x a.c",
            "gcc -fuse-ld=./x a.c",
            "gcc -no-canonical-prefixes a.c",
        ],
    ),
    (
        "clang",
        &["clang -c a.c"],
        &[
            "clang @x",
            "clang -Xclang -load -Xclang ./x a.c",
            "clang -fplugin=./x a.c",
            "clang -gcc-toolchain . a.c",
            "clang --config x a.c",
            "clang -fpass-plugin=./x a.c",
            "clang --ld-path=./x a.c",
        ],
    ),
    ("g++", &["g++ -c a.cc"], &["g++ @x", "g++ -fplugin=./x a.cc", "g++ -B. a.cc"]),
    ("cc", &["cc -c a.c"], &["cc @x", "cc -wrapper ./x a.c"]),
    ("ld", &[], &["ld @x", "ld -plugin ./x a.o", "ld --plugin=./x a.o", "ld -T x a.o"]),
    (
        "nm",
        &["nm a.o", "nm -C a.o"],
        &["nm --plugin ./x.so a.o", "nm --plugin=./x.so a.o", "nm --plug=./x.so a.o", "nm @x"],
    ),
    ("objdump", &["objdump -d a.o"], &["objdump --plugin=./x.so a.o", "objdump @x"]),
    ("ar", &["ar t a.a"], &["ar --plugin ./x.so t a.a", "ar @x"]),
    ("strip", &["strip a"], &["strip --plugin=./x a", "strip @x"]),
    ("objcopy", &["objcopy a b"], &["objcopy --plugin ./x a b", "objcopy @x"]),
    ("ranlib", &["ranlib a.a"], &["ranlib --plugin ./x a.a", "ranlib @x"]),
    ("readelf", &["readelf -h a"], &["readelf @x"]),
    ("ldd", &[], &["ldd ./x", "ldd x"]),
    (
        "rustc",
        &["rustc a.rs"],
        &[
            "rustc @x",
            "rustc -C linker=./x a.rs",
            "rustc --codegen=linker=./x a.rs",
            "rustc --extern p=./p.so a.rs",
            "rustc -Zx a.rs",
        ],
    ),
    (
        "javac",
        &["javac A.java", "javac -g -Xlint A.java"],
        &[
            "javac @x",
            "javac -processorpath . -processor X A.java",
            "javac -J-javaagent:x A.java",
            "javac -Xplugin:X A.java",
            "javac -cp . A.java",
        ],
    ),
    ("tsc", &["tsc --noEmit"], &["tsc @x", "tsc -p ../x"]),
    (
        "less",
        &["less a", "less -N a"],
        &[
            "less --lesskey-src=x y",
            "less --lesskey-s x y",
            "less --lesskey-content=x y",
            "less -kx y",
            "less +!id y",
            "less '+!id' y",
            "less ++!id y",
            "less -o x y",
            "less -T x y",
        ],
    ),
    ("more", &["more a"], &["more +!id a"]),
    ("man", &["man ls"], &["man -P ./x ls", "man --pager=./x ls", "man -H./x ls", "man -C x ls"]),
    ("bat", &["bat a"], &["bat --pager ./x a", "bat --pager=./x a"]),
    (
        "fzf",
        &["fzf -f x", "fzf --filter x"],
        &[
            "fzf --preview ./x",
            "fzf --preview=./x",
            "fzf --bind 'start:execute(id)'",
            "fzf --bind=load:become:id",
            "fzf --listen",
            "fzf --with-shell ./x",
            "fzf --previe id",
        ],
    ),
    (
        "rspec",
        &["rspec", "rspec spec/a_spec.rb", "rspec --color -e x", "rspec -fd"],
        &[
            "rspec -r ./x",
            "rspec -r./x",
            "rspec --require ./x",
            "rspec --require=./x",
            "rspec --req ./x",
            "rspec -I .",
            "rspec -O x",
            "rspec --options x",
            "rspec -f ./X",
            "rspec --format X",
        ],
    ),
    (
        "bundle exec rspec",
        &["bundle exec rspec", "bundle exec rspec spec/a_spec.rb"],
        &[
            "bundle exec rspec -r ./x",
            "bundle exec rspec --require ./x",
            "bundle exec rspec -I . -r x",
            "bundle exec rspec --require=./x",
        ],
    ),
    (
        "rake",
        &["rake test"],
        &["rake -f x", "rake -r ./x", "rake -e 'sh %(id)'", "rake -R x", "rake --execute id"],
    ),
    (
        "rubocop",
        &["rubocop app"],
        &["rubocop -r ./x", "rubocop --require ./x", "rubocop -c x", "rubocop --plugin x"],
    ),
    (
        "phpunit",
        &["phpunit", "phpunit --filter x", "phpunit tests/A.php"],
        &[
            "phpunit --bootstrap ./x",
            "phpunit --bootstrap=x",
            "phpunit --boot x",
            "phpunit -c x",
            "phpunit --configuration=x",
            "phpunit --extension X",
            "phpunit -d x=y",
        ],
    ),
    (
        "cmake",
        &["cmake -B build -S .", "cmake -B build -DCMAKE_BUILD_TYPE=Release"],
        &[
            "cmake -P x",
            "cmake -E env ./x",
            "cmake -C x",
            "cmake -DCMAKE_C_COMPILER=./x .",
            "cmake --toolchain x .",
            "cmake -DCMAKE_PROJECT_INCLUDE=x .",
        ],
    ),
    (
        "cmake --build",
        &[
            "cmake --build build",
            "cmake --build build -j8",
            "cmake --build build --target all",
            "cmake --build build -- -j4",
            "cmake --build build -- VERBOSE=1",
        ],
        &[
            "cmake --build . -- SHELL=x",
            "cmake --build . -- SHELL=./x all",
            "cmake --build . -- -f x",
            "cmake --build . -- --eval=x",
            "cmake --build . -- CC=./x",
            "cmake --build . -- MAKEFLAGS=x",
        ],
    ),
    (
        "make",
        &["make", "make -j8", "make test"],
        &[
            "make SHELL=./x",
            "make CC=./x",
            "make -f x",
            "make --eval='$(shell id)'",
            "make -C ../x",
            "make .SHELLFLAGS=x",
            "make -E x",
        ],
    ),
    (
        "git apply",
        &["git apply a.patch"],
        &[
            "git apply --unsafe-paths a.patch",
            "git apply --unsafe a.patch",
            "git apply --directory=../x a.patch",
        ],
    ),
    (
        "git merge",
        &["git merge main", "git merge --no-ff main"],
        &[
            "git merge -s x main",
            "git merge -s./x main",
            "git merge --strategy=x main",
            "git merge --strat x main",
        ],
    ),
    (
        "git rebase",
        &["git rebase main"],
        &[
            "git rebase -s ./x main",
            "git rebase --exec ./x main",
            "git rebase -x ./x main",
            "git rebase --strategy=x main",
            "git rebase -i main",
            "git rebase --ex ./x main",
        ],
    ),
    ("git pull", &["git pull"], &["git pull -s x", "git pull --upload-pack=./x", "git pull --strategy x"]),
    (
        "git fetch",
        &["git fetch origin"],
        &["git fetch --upload-pack=./x origin", "git fetch --upload ./x origin", "git fetch ext::./x"],
    ),
    (
        "git clone",
        &["git clone --depth 1 x y"],
        &[
            "git clone -u ./x y",
            "git clone --template=x y",
            "git clone -c core.hooksPath=x y",
            "git clone --config x=y z",
            "git clone ext::./x",
        ],
    ),
    ("git init", &["git init a"], &["git init --template=x a", "git init --separate-git-dir=x a"]),
    (
        "git grep",
        &["git grep foo"],
        &["git grep -O./x foo", "git grep --open-files-in-pager=./x foo", "git grep -nO./x foo"],
    ),
    (
        "git diff",
        &["git diff --stat"],
        &[
            "git diff --ext-diff",
            "git diff --textconv",
            "git diff --output=x",
            "git diff --no-index a /etc/x",
        ],
    ),
    (
        "git archive",
        &["git archive HEAD"],
        &["git archive --remote=ext::x HEAD", "git archive --exec=./x HEAD", "git archive -o x HEAD"],
    ),
    (
        "svn",
        &["svn status"],
        &[
            "svn diff --diff-cmd ./x",
            "svn --config-option x=y status",
            "svn --config-dir x status",
            "svn commit --editor-cmd ./x",
        ],
    ),
    ("hg", &["hg status"], &["hg --config alias.x='!id' x", "hg --debugger status", "hg --ssh ./x pull"]),
    (
        "yq",
        &["yq .a x.yml"],
        &[
            "yq 'load(\"/etc/shadow\")' x",
            "yq 'load_str(\"x\")' y",
            "yq 'strenv(HOME)' x",
            "yq 'env(X)' x",
            "yq -i .a=1 x",
            "yq --from-file x y",
            "yq 'envsubst' x",
        ],
    ),
    (
        "jq",
        &["jq .a x.json"],
        &[
            "jq env x",
            "jq '$ENV' x",
            "jq '. | env' x",
            "jq -f x y",
            "jq -L . x",
            "jq --rawfile a b x",
            "jq 'include \"x\"; .' y",
        ],
    ),
    (
        "pytest",
        &["pytest -q tests", "pytest -k x -x", "pytest --cov=src"],
        &[
            "pytest -p evil",
            "pytest -pevil",
            "pytest --pastebin=all",
            "pytest --paste=all",
            "pytest --rootdir=x",
            "pytest -c x",
            "pytest @x",
            "pytest --config-file=x",
            "pytest -o addopts=x",
        ],
    ),
    (
        "python -m pytest",
        &["python -m pytest -q"],
        &["python -m pytest -p evil", "python -m pytest --pastebin=all", "python -m pytest @x"],
    ),
    ("mypy", &["mypy src"], &["mypy @x", "mypy --config-file=x src", "mypy --python-executable=./x src"]),
    (
        "pylint",
        &["pylint src"],
        &["pylint --load-plugins=x src", "pylint --init-hook='import x' src", "pylint --rcfile=x src"],
    ),
    ("flake8", &["flake8 src"], &["flake8 --config x src", "flake8 --append-config=x src"]),
    (
        "eslint",
        &["eslint src"],
        &[
            "eslint --rulesdir . src",
            "eslint -c x src",
            "eslint --parser ./x src",
            "eslint --plugin ./x src",
            "eslint -f ./x src",
            "eslint --resolve-plugins-relative-to . src",
            "eslint -o x src",
        ],
    ),
    (
        "npx eslint",
        &["npx eslint src", "npx eslint --ext .ts src"],
        &["npx eslint -c x src", "npx eslint --rulesdir . src", "npx eslint -f ./x src"],
    ),
    (
        "prettier",
        &["prettier --check ."],
        &["prettier --plugin=./x .", "prettier --config x .", "prettier --plugin-search-dir=. ."],
    ),
    (
        "stylelint",
        &["stylelint a.css"],
        &["stylelint --custom-syntax ./x a.css", "stylelint --config x a.css", "stylelint -f ./x a.css"],
    ),
    (
        "jest",
        &["jest a.test.ts", "jest --coverage"],
        &[
            "jest --globalSetup ./x",
            "jest --transform x",
            "jest --runner=./x",
            "jest -c x",
            "jest --setupFilesAfterEnv ./x",
            "jest --resolver ./x",
            "jest --testRunner ./x",
        ],
    ),
    (
        "vitest",
        &["vitest run"],
        &[
            "vitest --config x",
            "vitest -c x",
            "vitest --globals",
            "vitest --environment ./x",
            "vitest --reporter ./x",
        ],
    ),
    (
        "mocha",
        &["mocha test"],
        &[
            "mocha -r ./x",
            "mocha --require ./x",
            "mocha --reporter ./x",
            "mocha --ui ./x",
            "mocha --import ./x",
            "mocha --config x",
        ],
    ),
    ("vite", &["vite build"], &["vite build -c x", "vite --config=x build"]),
    (
        "rollup",
        &["rollup a.js"],
        &["rollup -c", "rollup -p ./x a.js", "rollup --plugin ./x a.js", "rollup --configPlugin x a.js"],
    ),
    (
        "babel",
        &["babel a.js"],
        &[
            "babel --plugins ./x a.js",
            "babel --presets ./x a.js",
            "babel --require ./x a.js",
            "babel --config-file ./x a.js",
        ],
    ),
    (
        "webpack",
        &["webpack --mode production"],
        &["webpack -c x", "webpack --config x", "webpack --extends ./x"],
    ),
    (
        "go build",
        &["go build ./..."],
        &[
            "go build -toolexec ./x ./...",
            "go build -toolexec=./x ./...",
            "go build --toolexec=./x",
            "go build -overlay x",
            "go build -ldflags=-extld=./x",
        ],
    ),
    (
        "go test",
        &["go test -v -run X ./..."],
        &["go test -exec ./x ./...", "go test -exec=./x", "go test -vettool ./x", "go test --exec ./x"],
    ),
    ("golangci-lint", &["golangci-lint run"], &["golangci-lint run -c x", "golangci-lint run --config=x"]),
    (
        "clang-tidy",
        &["clang-tidy a.c"],
        &[
            "clang-tidy -load=./x a.c",
            "clang-tidy --load ./x a.c",
            "clang-tidy --config-file=x a.c",
            "clang-tidy -p x a.c",
        ],
    ),
    (
        "cppcheck",
        &["cppcheck src"],
        &["cppcheck --addon=./x src", "cppcheck --clang=./x src", "cppcheck --rule-file=x src"],
    ),
    (
        "rsync",
        &["rsync -a a/ b/"],
        &[
            "rsync -e ./x a h:",
            "rsync --rsh=./x a h:",
            "rsync --rsync-path=./x a h:",
            "rsync -ae ./x a h:",
            "rsync -M--rsh=x a h:",
        ],
    ),
    ("scp", &[], &["scp -S ./x a h:", "scp -o ProxyCommand=./x a h:", "scp -F x a h:", "scp -J x a h:"]),
    ("sort", &["sort -u a"], &["sort --compress-program=./x a", "sort --compress-prog ./x a", "sort -o x a"]),
    ("split", &["split -l 10 a"], &["split --filter=./x a", "split --filt ./x a"]),
    ("zip", &["zip -r a.zip src"], &["zip -TT ./x a.zip b", "zip -T a.zip", "zip --unzip-command ./x a b"]),
    ("7z", &["7z l a.7z"], &["7z a x @list", "7z x a -oout"]),
    ("cloc", &["cloc src"], &["cloc --extract-with='./x >FILE<' a", "cloc --vcs=./x .", "cloc --config x ."]),
    ("ctags", &["ctags -R src"], &["ctags --options=x src", "ctags --opt=x src"]),
    (
        "wget",
        &["wget -q x"],
        &[
            "wget --use-askpass=./x https://x",
            "wget -e use_askpass=./x https://x",
            "wget --config=x https://x",
        ],
    ),
    (
        "curl",
        &["curl -s x"],
        &["curl -K x https://x", "curl --config x", "curl -o x https://x", "curl -d @x https://x"],
    ),
    (
        "docker",
        &["docker ps -a", "docker images", "docker logs -f app"],
        &["docker run x", "docker exec x sh", "docker -H tcp://x ps", "docker cp a:/x y"],
    ),
    (
        "kubectl",
        &["kubectl get pods -A", "kubectl logs -f x"],
        &[
            "kubectl exec x -- sh",
            "kubectl run x",
            "kubectl --kubeconfig=x get pods",
            "kubectl edit x",
            "kubectl debug x",
        ],
    ),
    (
        "helm",
        &["helm list -A", "helm lint chart"],
        &[
            "helm template x --post-renderer ./x",
            "helm install x --post-renderer=./x",
            "helm plugin install x",
        ],
    ),
    (
        "terraform plan",
        &["terraform plan -no-color"],
        &["terraform plan -var-file=x", "terraform plan -out=x", "terraform plan -chdir=x"],
    ),
    (
        "npm",
        &["npm ls", "npm ci --ignore-scripts"],
        &[
            "npm test --script-shell=./x",
            "npm --prefix x test",
            "npm --node-options=x test",
            "npm exec -c id",
        ],
    ),
    ("pnpm", &["pnpm ls"], &["pnpm --script-shell=./x test", "pnpm -C x test", "pnpm --pnpmfile x install"]),
    ("yarn", &["yarn build"], &["yarn --cwd x build", "yarn --use-yarnrc x build"]),
    ("pip", &["pip list"], &["pip install --index-url x y", "pip --python ./x list", "pip install -e x"]),
    ("mvn", &["mvn -q test"], &["mvn -f x test", "mvn -Dx=y test", "mvn -s x test", "mvn -t x test"]),
    (
        "gradle",
        &["gradle build"],
        &["gradle -I x build", "gradle --init-script=x build", "gradle -b x build", "gradle -Dx=y build"],
    ),
    (
        "dotnet",
        &["dotnet build"],
        &[
            "dotnet build @x",
            "dotnet test -l ./x",
            "dotnet test --test-adapter-path x",
            "dotnet build -p:X=y",
        ],
    ),
    (
        "swift",
        &["swift build"],
        &["swift build -Xswiftc -load", "swift build --toolchain x", "swift build -Xlinker x"],
    ),
    (
        "cargo",
        &["cargo test --all"],
        &["cargo --config x test", "cargo test --config x", "cargo -Z x test", "cargo rustc -- -Clinker=./x"],
    ),
    ("hyperfine", &[], &["hyperfine ./x", "hyperfine 'ls'"]),
    ("watchexec", &[], &["watchexec ls"]),
    ("nodemon", &[], &["nodemon --exec ./x"]),
    ("strings", &["strings a"], &["strings @x"]),
    ("patch", &["patch -p1"], &["patch -e a b", "patch -o x a", "patch --ed a b"]),
    ("ip", &["ip addr"], &["ip -b x", "ip netns exec x y"]),
    ("tcpdump", &["tcpdump -i lo"], &["tcpdump -z ./x -w a -C 1", "tcpdump -r x"]),
    (
        "apt-get",
        &["apt-get update"],
        &["apt-get -o APT::Update::Pre-Invoke::=./x update", "apt-get -c x update"],
    ),
    (
        "pandoc",
        &["pandoc a.md -t html"],
        &[
            "pandoc --filter ./x a.md",
            "pandoc -F ./x a.md",
            "pandoc --lua-filter=x a.md",
            "pandoc --pdf-engine=./x a.md",
        ],
    ),
    (
        "sphinx-build",
        &["sphinx-build docs out"],
        &["sphinx-build -c x docs out", "sphinx-build -Dextensions=x docs out"],
    ),
    ("mkdocs", &["mkdocs build"], &["mkdocs build -f x"]),
    ("coverage", &["coverage report"], &["coverage run x.py", "coverage --rcfile=x report"]),
    ("find", &["find . -name x"], &["find . -exec ./x {} +", "find . -delete", "find . -fprintf x y"]),
    ("rg", &["rg foo src"], &["rg --pre ./x foo", "rg --hostname-bin=./x foo", "rg --pre=./x foo"]),
    ("xxd", &["xxd a"], &["xxd -r a b"]),
    ("composer", &["composer install"], &["composer -d x install", "composer --working-dir=x install"]),
    ("tox", &["tox -e py311"], &["tox -c x", "tox -x testenv.commands=id"]),
    ("nox", &["nox -s tests"], &["nox -f x"]),
    ("ctest", &["ctest -j8"], &["ctest -S x", "ctest --build-and-test a b", "ctest -T x"]),
    ("ninja", &["ninja"], &["ninja -f x", "ninja -C x"]),
    ("playwright", &["playwright test"], &["playwright test -c x", "playwright test --reporter ./x"]),
];

#[test]
fn a_rule_for_a_program_does_not_vouch_for_flags_that_run_something_else() {
    let mut wrong = Vec::new();
    let (mut fine, mut hostile) = (0, 0);
    for (words, vouched, others) in PROGRAMS {
        let rules = allow_rule(words);
        fine += vouched.len();
        hostile += others.len();
        for line in *vouched {
            let verdict = judge_line(&rules, line);
            if verdict.outcome != Judgement::Allow {
                wrong.push(format!("{words}: {line:?} is not allowed: {}", verdict.reason));
            }
        }
        for line in *others {
            if judge_line(&rules, line).outcome == Judgement::Allow {
                wrong.push(format!("{words}: {line:?} is allowed"));
            }
        }
    }
    eprintln!("{} programs, {fine} lines allowed, {hostile} not", PROGRAMS.len());
    assert!(PROGRAMS.len() >= 60 && hostile >= 300, "{} {hostile}", PROGRAMS.len());
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

const HOSTILE: &str = include_str!("data/hostile.txt");

/// Each hostile line in each disguise, under one policy that allows all these programs and the parts of
/// disguises.
#[test]
fn in_no_disguise_is_such_a_line_allowed() {
    let mut rules =
        RuleSet::parse(RuleLayer::User, "policy.toml", include_str!("data/policy.toml")).expect("good").0;
    for (words, _, _) in PROGRAMS {
        rules.rules.extend(allow_rule(words).rules);
    }
    let disguises: Vec<&str> = HOSTILE
        .split("== disguises\n")
        .nth(1)
        .expect("disguises")
        .lines()
        .filter(|line| !line.is_empty())
        .collect();
    let all: Vec<&str> = PROGRAMS.iter().flat_map(|(_, _, hostile)| hostile.iter().copied()).collect();
    // A short run takes every tenth disguise of each line, beginning at a different one.
    let step = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { 10 };
    let (mut count, mut wrong) = (0, Vec::new());
    for (at, line) in all.iter().enumerate() {
        for disguise in disguises.iter().skip(at % step).step_by(step) {
            let disguised = disguise.replace("\\n", "\n").replace('@', line);
            count += 1;
            if judge_line(&rules, &disguised).outcome == Judgement::Allow {
                wrong.push(disguised);
            }
        }
    }
    eprintln!("{count} lines, none allowed");
    assert!(count >= 1_000, "{count}");
    assert!(wrong.is_empty(), "{} of {count}\n{:#?}", wrong.len(), wrong);
}

/// For an unknown program, a rule allows its words, files in the scope, and the flags that it names.
#[test]
fn of_an_unknown_program_only_the_flags_of_the_rule_are_vouched_for() {
    for (words, line, wanted) in [
        ("foo bar", "foo bar", "allow"),
        ("foo bar", "foo bar x y", "allow"),
        ("foo bar", "foo bar src/a.txt", "allow"),
        ("foo bar", "foo bar --help", "allow"),
        ("foo bar", "foo bar --version", "allow"),
        ("foo bar", "foo bar -- x", "allow"),
        ("foo bar", "foo bar src/*.txt", "allow"),
        ("foo bar", "foo bar --weird", "ask"),
        ("foo bar", "foo bar --weird=x", "ask"),
        ("foo bar", "foo bar x -v", "ask"),
        ("foo bar", "foo bar -vx", "ask"),
        ("foo bar", "foo bar -- --weird", "ask"),
        ("foo bar", "foo bar @x", "ask"),
        ("foo bar", "foo bar +x", "ask"),
        ("foo bar", "foo bar *", "ask"),
        ("foo bar", "foo --weird bar", "ask"),
        ("foo bar", "foo bar /etc/x", "ask"),
        ("foo bar --weird", "foo bar --weird", "allow"),
        ("foo bar --weird", "foo bar --weird x", "allow"),
        ("foo bar --weird", "foo bar --weird --other", "ask"),
        ("foo", "foo x", "allow"),
        ("foo", "foo -x", "ask"),
    ] {
        let verdict = judge_line(&allow_rule(words), line);
        assert_eq!(verdict.outcome.as_str(), wanted, "{words}: {line}: {}", verdict.reason);
    }
}
