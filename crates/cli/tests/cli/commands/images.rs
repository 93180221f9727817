//! The path of an image: a file in the workspace, a result in the log, a blob, and the request in every
//! format.

use serde_json::Value;

use crate::support::mock_world::{MockWorld, WIRE_MODELS};

const IMAGE_SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/dot.png" }
[[turn]]
text = "A dot."
[[turn]]
expect = "again"
text = "Still a dot."
"#;

/// The smallest PNG.
pub(crate) const TINY_PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0,
    1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

#[test]
fn what_read_shows_reaches_the_model_and_stays_with_the_session() {
    for model in WIRE_MODELS {
        let wired = MockWorld::with_script(IMAGE_SCRIPT);
        std::fs::write(wired.world.work_dir().join("dot.png"), TINY_PNG).unwrap();
        let done = wired.run_exec(model, &["describe it"]);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "A dot.\n"), "{model}: {done:?}");
        // The file is gone; the session has its content.
        std::fs::remove_file(wired.world.work_dir().join("dot.png")).unwrap();
        let done = wired.run_exec(model, &["--last", "again"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        let images: Vec<u64> =
            wired.mock_requests().iter().filter_map(|request| request["images"].as_u64()).collect();
        assert_eq!(images, [0, 1, 1], "{model}");
        let log = wired.session_log();
        let shown: Vec<&Value> =
            log.iter().filter(|entry| entry["item"]["images"][0]["media_type"] == "image/png").collect();
        let [shown] = shown.as_slice() else { panic!("{model}: one result contains it: {shown:?}") };
        let summary = shown["item"]["summary"].as_str().unwrap();
        assert!(summary.contains("PNG image, 1 × 1 pixels"), "{model}: {summary}");
        wired.world.verify_logs();
    }
}
