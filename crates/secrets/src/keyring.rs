//! The system's keyring, if it was built in (feature `keyring`).
//!
//! Reading only: `minke login` keeps keys in private files, because a machine without a desktop has no keyring that
//! outlives a restart. Entries are those of the service `minke`.

use crate::error::SecretError;
use crate::secret::Secret;

#[cfg(not(feature = "keyring"))]
pub(crate) fn read(name: &str) -> Result<Option<Secret>, SecretError> {
    Err(SecretError::NoKeyring { name: name.to_owned() })
}

#[cfg(feature = "keyring")]
pub(crate) use built_in::read;

#[cfg(feature = "keyring")]
mod built_in {
    use std::sync::mpsc;
    use std::time::Duration;

    #[cfg(target_os = "macos")]
    use apple_native_keyring_store::keychain::Store;
    use keyring_core::Error;
    use keyring_core::api::CredentialStoreApi;
    #[cfg(not(target_os = "macos"))]
    use zbus_secret_service_keyring_store::Store;

    use super::{Secret, SecretError};

    /// The service under which our entries are.
    const SERVICE: &str = "minke";
    /// A keyring that is locked may ask a person; nobody waits longer for one.
    const DEADLINE: Duration = Duration::from_secs(30);

    /// The key in this entry; `None` if there is no such entry. On a thread of its own: the store runs a runtime
    /// inside, which must not happen inside another, and what hangs there must not hang here.
    pub(crate) fn read(name: &str) -> Result<Option<Secret>, SecretError> {
        let failed = |why: String| SecretError::Keyring { name: name.to_owned(), why };
        let (tell, told) = mpsc::sync_channel(1);
        let entry = name.to_owned();
        // Nobody may be waiting any more; then the answer goes nowhere.
        let ask = move || drop(tell.send(password(&entry)));
        std::thread::Builder::new()
            .name("keyring".into())
            .spawn(ask)
            .map_err(|e| failed(format!("no thread for it: {e}")))?;
        match told.recv_timeout(DEADLINE) {
            Ok(Ok(bytes)) => Secret::from_bytes(bytes)
                .map(Some)
                .map_err(|why| why.at(format!("the keyring entry {name:?}"))),
            Ok(Err(Error::NoEntry)) => Ok(None),
            // Some of its errors carry the value; only their display text, which does not, goes on.
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }

    fn password(name: &str) -> Result<Vec<u8>, Error> {
        Store::new()?.build(SERVICE, name, None)?.get_secret()
    }
}
