//! Reads the system keyring when the feature `keyring` is built in.
//!
//! There is no write access: `minke login` stores keys in private files, because a machine without a desktop
//! has no keyring that survives a restart. All entries belong to the service `minke`.

use crate::error::SecretError;
use crate::secret::Secret;

#[cfg(not(feature = "keyring"))]
pub(crate) fn read_entry(name: &str) -> Result<Option<Secret>, SecretError> {
    Err(SecretError::KeyringUnsupported { name: name.to_owned() })
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

    /// The keyring service that contains all entries of Minke.
    const SERVICE: &str = "minke";
    /// How long to wait for a locked keyring, which may prompt the user.
    const KEYRING_TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns the key in the entry `name`, or `None` if there is no such entry. Runs on its own thread: the
    /// keyring library starts a runtime, which must not be nested in another runtime, and may block.
    pub(crate) fn read_entry(name: &str) -> Result<Option<Secret>, SecretError> {
        let io_error = |why: String| SecretError::KeyringFailed { name: name.to_owned(), why };
        let (tell, told) = mpsc::sync_channel(1);
        let entry = name.to_owned();
        // The receiver is gone after the timeout.
        let ask = move || drop(tell.send(read_password(&entry)));
        std::thread::Builder::new()
            .name("keyring".into())
            .spawn(ask)
            .map_err(|e| io_error(format!("no thread for it: {e}")))?;
        match told.recv_timeout(KEYRING_TIMEOUT) {
            Ok(Ok(bytes)) => Secret::from_bytes(bytes)
                .map(Some)
                .map_err(|why| why.at(format!("the keyring entry {name:?}"))),
            Ok(Err(Error::NoEntry)) => Ok(None),
            // Some of these errors contain the value. Their display text does not, so only the text is used.
            Ok(Err(error)) => Err(io_error(error.to_string())),
            Err(_) => Err(io_error(format!("no response within {} s", KEYRING_TIMEOUT.as_secs()))),
        }
    }

    fn read_password(name: &str) -> Result<Vec<u8>, Error> {
        Store::new()?.build(SERVICE, name, None)?.get_secret()
    }
}
