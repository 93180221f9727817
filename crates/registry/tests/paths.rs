//! The user's directories, and refused ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use minke_registry::{PathsError, ProcessEnv, UserPaths};

fn test_env(home: &Path, variables: &[(&str, &str)]) -> ProcessEnv {
    let uid = fs::metadata(home).expect("the temporary home exists").uid();
    let env = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    ProcessEnv { env, uid }
}

#[test]
fn the_first_variable_that_is_set_counts() {
    let root = Path::new("/");
    let all = [
        ("MINKE_HOME", "/m"),
        ("HOME", "/h"),
        ("XDG_CONFIG_HOME", "/xc"),
        ("XDG_DATA_HOME", "/xd"),
        ("XDG_STATE_HOME", "/xs"),
        ("XDG_RUNTIME_DIR", "/xr"),
    ];
    let show = |variables: &[(&str, &str)]| {
        let paths = UserPaths::from_env(&ProcessEnv { uid: 7, ..test_env(root, variables) }).unwrap();
        [paths.config, paths.data, paths.state, paths.runtime].map(|path| path.to_string_lossy().into_owned())
    };
    assert_eq!(show(&all), ["/m/config", "/m/data", "/m/state", "/m/run"]);
    assert_eq!(show(&all[1..]), ["/xc/minke", "/xd/minke", "/xs/minke", "/xr/minke"]);
    let home = ["/h/.config/minke", "/h/.local/share/minke", "/h/.local/state/minke", "/tmp/minke-7"];
    assert_eq!(show(&all[1..2]), home);
    assert_eq!(show(&[("HOME", "/h"), ("MINKE_HOME", ""), ("TMPDIR", "/t")])[3], "/t/minke-7");
}

#[test]
fn a_home_that_is_missing_or_relative_is_told() {
    let root = Path::new("/");
    assert!(matches!(UserPaths::from_env(&test_env(root, &[])), Err(PathsError::NoHome)));
    let e = UserPaths::from_env(&test_env(root, &[("MINKE_HOME", "here")])).unwrap_err();
    assert!(e.to_string().contains("$MINKE_HOME is `here`"), "{e}");
    // All directories are specified, so no home is needed.
    let given = [("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d"), ("XDG_STATE_HOME", "/s")];
    assert!(UserPaths::from_env(&test_env(root, &given)).is_ok());
}

#[test]
fn finding_makes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let there = home.path().join("new").to_string_lossy().into_owned();
    let paths = UserPaths::from_env(&test_env(home.path(), &[("MINKE_HOME", &there)])).unwrap();
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    paths.create_dirs().unwrap();
    paths.create_dirs().unwrap();
    assert!(!paths.config.exists(), "the configuration is the user's own to make");
    for made in [&paths.data, &paths.state, &paths.runtime] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn an_open_directory_of_ours_is_closed_to_others() {
    let home = tempfile::tempdir().unwrap();
    let paths =
        UserPaths::from_env(&test_env(home.path(), &[("MINKE_HOME", &home.path().to_string_lossy())]))
            .unwrap();
    fs::create_dir(&paths.runtime).unwrap();
    fs::set_permissions(&paths.runtime, fs::Permissions::from_mode(0o755)).unwrap();
    paths.create_dirs().unwrap();
    assert_eq!(fs::metadata(&paths.runtime).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut process_env = test_env(home.path(), &[("MINKE_HOME", &home.path().to_string_lossy())]);
    UserPaths::from_env(&process_env).unwrap().create_dirs().unwrap();
    process_env.uid += 1;
    let e = UserPaths::from_env(&process_env).unwrap().create_dirs().unwrap_err();
    assert!(matches!(e, PathsError::NotYours { .. }), "{e}");
    assert!(e.to_string().contains("set MINKE_HOME"), "{e}");
}

#[test]
fn a_link_or_a_file_in_the_place_of_a_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let paths =
        UserPaths::from_env(&test_env(home.path(), &[("MINKE_HOME", &home.path().to_string_lossy())]))
            .unwrap();
    fs::create_dir(home.path().join("elsewhere")).unwrap();
    symlink(home.path().join("elsewhere"), &paths.runtime).unwrap();
    let e = paths.create_dirs().unwrap_err();
    assert!(matches!(e, PathsError::NotADirectory { what: "runtime", .. }), "{e}");
    fs::remove_file(&paths.runtime).unwrap();
    fs::write(&paths.runtime, "").unwrap();
    let e = paths.create_dirs().unwrap_err();
    assert!(matches!(e, PathsError::NotADirectory { what: "runtime", .. }), "{e}");
}

#[test]
fn a_home_that_cannot_be_written_is_told_with_the_way_out() {
    // No user, not even root, can create a directory in /proc, so this needs no read-only mount.
    let process_env = test_env(Path::new("/"), &[("MINKE_HOME", "/proc/minke-home")]);
    let e = UserPaths::from_env(&process_env).unwrap().create_dirs().unwrap_err();
    let text = e.to_string();
    assert!(text.contains("could not create the data directory /proc/minke-home/data"), "{text}");
    assert!(text.contains("set MINKE_HOME to a directory you can write"), "{text}");
}
