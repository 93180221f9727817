//! Unknown keys: each kind is found anywhere in a text, and ordinary text contains none.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use minke_secrets::{find_keys, first_kind_in, known_kinds, mask_keys};

/// Invented keys, one for each prefix. The prefix is separate, so that secret scanners do not report this
/// file.
const KEYS: &[(&str, &str, &str)] = &[
    ("anthropic-key", "sk-ant-", "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AbCdEfAA"),
    ("openai-key", "sk-", "proj-9xYzQ2w8E4rT6yU1iO3pA5sD7fG0hJ2kL4zX6cV8bN1m"),
    ("openrouter-key", "sk-or-v1-", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("google-api-key", "AIza", "SyD3m0K3yTh4tIsN0tR3al1234567890abc"),
    ("google-oauth-secret", "GOCSPX-", "4f7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5W"),
    ("google-access-token", "ya29.", "a0AfH6SMBx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6"),
    ("xai-key", "xai-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
    ("groq-key", "gsk_", "2Wn4Qe6Rt8Yu0Io1Pa3Sd5Fg7Hj9Kl2Zx4Cv6Bn8Mq"),
    ("huggingface-token", "hf_", "QwErTyUiOpAsDfGhJkLzXcVbNm123456"),
    ("perplexity-key", "pplx-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3xx"),
    ("replicate-token", "r8_", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6"),
    ("github-token", "ghp_", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8"),
    ("github-token", "github_pat_", "11ABCDEFG0a1b2c3d4e5f6_g7h8i9j0k1l2m3n4o5p6q7r8s9t0"),
    ("gitlab-token", "glpat-", "x7Hq2Lm9Xv4Bn6Zc8Kd1"),
    ("aws-access-key-id", "AKIA", "Q3EGR7XW2LKJ5T4B"),
    ("aws-access-key-id", "ASIA", "IOSFODNNXEXAMPL7"),
    ("slack-token", "xoxb-", "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"),
    ("slack-token", "xapp-", "1-A0123456789-1234567890123-0123456789abcdef"),
    ("slack-webhook", "hooks.slack.com/services/", "T01ABCDEFGH/B01ABCDEFGH/x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3R"),
    (
        "discord-webhook",
        "discord.com/api/webhooks/",
        "123456789012345678/x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3x7Hq2Lm9X",
    ),
    ("twilio-key", "SK", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("sendgrid-key", "SG.", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf.3Rt5Wy0Us2Ag4Je6Ih8No1Mq3x7Hq2Lm9Xv4Bn6Zc8K"),
    ("stripe-key", "sk_live_", "51H7Hq2Lm9Xv4Bn6Zc8Kd1Pf3"),
    ("stripe-key", "whsec_", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2A"),
    ("square-token", "sq0atp-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3"),
    ("shopify-token", "shpat_", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("npm-token", "npm_", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je"),
    ("pypi-token", "pypi-AgEIcHlwaS5vcmc", "CJDdhNmY3ZTJkLTQ5YzAtNGQ4Yi1iZjE2LTAwMDAwMDAwMDAwMAACKlszLCJ7"),
    ("rubygems-key", "rubygems_", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"),
    ("docker-token", "dckr_pat_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5W"),
    ("digitalocean-token", "dop_v1_", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("vault-token", "hvs.", "CAESIJx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6"),
    ("databricks-token", "dapi", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("heroku-key", "HRKU-", "AAx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
    ("linear-key", "lin_api_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih"),
    ("notion-token", "ntn_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq"),
    ("postman-key", "PMAK-", "0f1e2d3c4b5a69788796a5b4-c3d2e1f00f1e2d3c4b5a69788796a5b4c3"),
    ("newrelic-key", "NRAK-", "7HQ2LM9XV4BN6ZC8KD1PF3RT5WY"),
    ("grafana-token", "glsa_", "x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2_0f1e2d3c"),
    ("sentry-token", "sntrys_", "eyJpYXQiOjE2OTkxMjM0NTYuNzg5LCJ1cmwiOiJodHRwczovL3"),
    ("supabase-token", "sbp_", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"),
    ("atlassian-token", "ATATT3x", "FfGF0x7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
    ("age-key", "AGE-SECRET-KEY-1", "7HQ2LM9XV4BN6ZC8KD1PF3RT5WY0US2AG4JE6IH8NK1MQ3X7HQ2LM9XV4B"),
    ("jwt", "eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW5vdC1yZWFs"),
];

/// Keys whose prefix is not part of them: text before, the key, text after.
const KEYS_IN_CONTEXT: &[(&str, &str, &str, &str)] = &[
    ("aws-secret-key", "aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYx7Hq2Lm9Xv", "\n"),
    ("aws-secret-key", "export AWS_SECRET_ACCESS_KEY='", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYx7Hq2Lm9Xv", "'"),
    ("aws-secret-key", "\"SecretAccessKey\": \"", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYx7Hq2Lm9Xv", "\""),
    ("telegram-token", "t=", "1234567890:AAx7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2A", "\n"),
    ("password-in-address", "postgres://app:", "x7Hq2Lm9Xv", "@db.internal:5432/app"),
    ("password-in-address", "mongodb+srv://admin:", "correct-horse", "@cluster0.mongodb.net/x"),
    ("password-in-address", "https://oauth2:", "x7Hq2Lm9Xv4Bn6", "@git.internal/a.git"),
    ("password-in-address", "redis://:", "p4ssw0rdp4ss", "@cache:6379/0"),
];

fn pem_block(kind: &str) -> String {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    format!("-----BEGIN {kind}PRIVATE KEY-----\n{line}\n{line}\n{line}\n-----END {kind}PRIVATE KEY-----")
}

#[test]
fn keys_are_known_by_their_shape_wherever_they_stand() {
    let mut seen = BTreeSet::new();
    for (kind, prefix, body) in KEYS {
        let key = &format!("{prefix}{body}");
        for text in [
            key.to_owned(),
            format!("Bearer {key}"),
            format!("é{{\"k\":\"{key}\"}}"),
            format!("k={key};"),
            format!("\"line\\n{key}\\n\""),
            format!("the key is {key}. Keep it."),
        ] {
            assert_eq!(first_kind_in(&text), Some(*kind), "{text}");
            let masked = mask_keys(&text);
            assert_eq!(masked, text.replace(key, &format!("[key {prefix}…]")));
            assert_eq!(first_kind_in(&masked), None, "{masked}");
        }
        seen.insert(*kind);
    }
    for (kind, before, key, after) in KEYS_IN_CONTEXT {
        let text = format!("{before}{key}{after}");
        assert_eq!(first_kind_in(&text), Some(*kind), "{text}");
        assert_eq!(mask_keys(&text), format!("{before}[key {kind}]{after}"));
        seen.insert(*kind);
    }
    for name in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let key = pem_block(name);
        for text in [key.clone(), format!("key: {key} done"), key.replace('\n', "\\n")] {
            assert_eq!(first_kind_in(&text), Some("private-key"), "{text}");
            let masked = mask_keys(&text);
            assert!(!masked.contains("MIIE") && !masked.contains("END"), "{masked}");
        }
        let half: String = key.chars().take(150).collect();
        assert!(!mask_keys(&half).contains("MIIE"), "an incomplete block is masked to its end");
        seen.insert("private-key");
    }
    let long: String = "x7Hq2Lm9Xv4Bn6Zc8/Kd1Pf3Rt+5Wy0Us2Ag4Je6Ih8No1Mq3".chars().cycle().take(86).collect();
    let azure = format!("AccountName=a;AccountKey={long}==;EndpointSuffix=b");
    assert_eq!(first_kind_in(&azure), Some("azure-storage-key"));
    seen.insert("azure-storage-key");
    assert_eq!(seen, known_kinds(), "a kind without a key in this test");
    let all: Vec<String> = KEYS.iter().map(|(_, prefix, body)| format!("{prefix}{body}")).collect();
    assert_eq!(find_keys(&all.join(" ")).count(), KEYS.len());
    assert_eq!(mask_keys(&all.join("\n")).matches("[key ").count(), KEYS.len());
}

#[test]
fn ordinary_text_has_none() {
    let hex = "5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592";
    for text in [
        "",
        "sk-ant-…",
        "the prefix sk-proj- is followed by letters",
        "sk-this-is-a-long-class-name-of-a-style-sheet-and-no-key",
        "task-0123456789abcdef0123456789abcdef0123",
        "AKIAMARAMARAMARAMARA",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xoxb-your-token-goes-here-please",
        "eyJhbGciOiJIUzI1NiJ9.notanobject.c2lnbmF0dXJl",
        "0194f8a2-7c6e-7d3a-9b1f-2e4d6c8a0b1c 5d41402abc4b2a76b9719d911017c592",
        "日本語 ghp_ äöü",
        "postgres://postgres:postgres@localhost:5432/postgres",
        "postgres://user:password@localhost/db",
        "postgres://$USER:$PASSWORD@db/app https://{user}:{token}@host",
        "https://example.com:8080/a@b http://localhost:3000/@scope/name",
        "git@github.com:owner/name.git ssh://git@host:2222/x",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END",
        "-----BEGIN PUBLIC KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END",
        "aws_secret_access_key = \"\" # set it",
        "12:AA 2024-01-01T10:00:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "DESK0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    ] {
        assert_eq!(first_kind_in(text), None, "{text}");
        assert_eq!(mask_keys(text), text);
    }
    for prefix in ["sha256:", "sha512-", "commit ", "W/\"", "pkg-", "v1_"] {
        assert_eq!(first_kind_in(&format!("{prefix}{hex}")), None);
    }
}

/// Collects the source files of the workspace. Skips vendored and downloaded files.
fn source_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for row in std::fs::read_dir(dir).unwrap() {
        let (path, name) = row.map(|row| (row.path(), row.file_name())).unwrap();
        let skipped = ["target", ".git", "node_modules"].iter().any(|skip| name == *skip);
        if path.is_dir() && !skipped {
            source_files(&path, out);
        } else if path.is_file() {
            out.push(path);
        }
    }
}

/// Random bytes in every encoding that files use. None of them matches a pattern by chance.
fn random_blobs() -> Vec<String> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all = vec![String::new(); 4];
    for at in 0..1_000_000_u32 {
        let bits = random();
        let letter = |of: usize| char::from(ALPHABET[usize::try_from(bits >> 8).unwrap_or(0) % of]);
        all[0].push(letter(64));
        all[1].push(if letter(66) == '+' { '-' } else { letter(66) });
        if at % 16 == 0 {
            all[2].push_str(&format!("{bits:016x}"));
            all[3].push_str(&format!(
                "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}\n",
                bits as u32,
                bits as u16,
                bits & 0xfff,
                bits >> 52,
                bits >> 16
            ));
        }
        if at % 76 == 0 {
            all.iter_mut().for_each(|text| text.push('\n'));
        }
    }
    all
}

#[test]
fn ordinary_files_have_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut paths = Vec::new();
    source_files(&root, &mut paths);
    let (mut bytes, mut files, mut found) = (0, 0, Vec::new());
    let begun = Instant::now();
    for path in paths {
        let shown = path.strip_prefix(&root).unwrap().display().to_string();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        // Tests contain invented keys and their own server keys.
        if shown.contains("/tests/") && (shown.ends_with(".rs") || shown.ends_with(".pem")) {
            continue;
        }
        bytes += text.len();
        files += 1;
        found.extend(find_keys(&text).map(|one| format!("{shown}: {} {:?}", one.kind, text.get(one.range))));
    }
    for text in random_blobs() {
        bytes += text.len();
        found.extend(find_keys(&text).map(|one| format!("random: {} {:?}", one.kind, text.get(one.range))));
    }
    eprintln!("{files} files, {bytes} bytes, {:?}", begun.elapsed());
    assert!(files > 300 && bytes > 4_000_000);
    assert_eq!(found, Vec::<String>::new());
}
