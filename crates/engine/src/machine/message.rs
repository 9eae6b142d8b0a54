//! The form of fields of tasks and results in messages between a worker and its helpers.

/// Bytes are copied at once; serde takes any other slice for a list of numbers.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<&'de [u8]>>(from: D) -> Result<T, D::Error> {
        <&[u8]>::deserialize(from).map(T::from)
    }
}

/// Whether there is a file. The file itself goes with the message as a descriptor.
pub(super) mod presence {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer, F>(file: &Option<F>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(file.is_some())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, F: Default>(from: D) -> Result<Option<F>, D::Error> {
        Ok(bool::deserialize(from)?.then(F::default))
    }
}
