//! Generates the types of the methods from a table that reads like the specification.

macro_rules! classes {
    ($(
        $(#[$class_doc:meta])*
        $class:ident $module:ident $class_number:literal {
            $(
                $(#[$doc:meta])*
                $name:ident $number:literal { $($field:ident: $type:ty),* $(,)? }
            )*
        }
    )*) => {
        $(
            $(#[$class_doc])*
            pub mod $module {
                #[allow(unused_imports)]
                use super::*;

                $(
                    $(#[$doc])*
                    #[derive(Debug, Clone, Default, PartialEq, Eq)]
                    pub struct $name {
                        $(
                            #[doc = concat!("The argument `", stringify!($field), "` of the specification.")]
                            pub $field: $type,
                        )*
                    }

                    impl $name {
                        /// Number of the class.
                        pub const CLASS: u16 = $class_number;
                        /// Number of the method within its class.
                        pub const NUMBER: u16 = $number;
                        /// Both, as the payload of a frame begins.
                        pub const ID: [u8; 4] = id(Self::CLASS, Self::NUMBER);

                        fn read(_from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                            Ok(Self { $($field: Field::read(_from)?,)* })
                        }

                        fn write(&self, to: &mut Writer<'_>) {
                            to.u16(Self::CLASS);
                            to.u16(Self::NUMBER);
                            $(self.$field.write(to);)*
                        }
                    }

                    impl From<$name> for Method {
                        fn from(method: $name) -> Self {
                            Self::$class($class::$name(method))
                        }
                    }
                )*

                $(#[$class_doc])*
                #[derive(Debug, Clone, PartialEq, Eq)]
                pub enum $class {
                    $(
                        $(#[$doc])*
                        $name($name),
                    )*
                }

                impl $class {
                    pub(super) fn read(number: u16, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                        match number {
                            $($number => $name::read(from).map(Self::$name),)*
                            method => Err(DecodeError::UnknownMethod { class: $class_number, method }),
                        }
                    }

                    pub(super) fn write(&self, to: &mut Writer<'_>) {
                        match self {
                            $(Self::$name(method) => method.write(to),)*
                        }
                    }

                    pub(super) fn name(&self) -> &'static str {
                        match self {
                            $(Self::$name(_) => concat!(stringify!($module), ".", stringify!($name)),)*
                        }
                    }

                    pub(super) fn numbers(&self) -> (u16, u16) {
                        match self {
                            $(Self::$name(_) => ($class_number, $number),)*
                        }
                    }
                }
            }

            pub use $module::$class;
        )*

        /// A method of any class.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Method {
            $(
                $(#[$class_doc])*
                $class($class),
            )*
        }

        impl Method {
            /// Decodes the payload of a method frame. Texts and tables share its bytes.
            ///
            /// # Errors
            /// If it is no method, or something follows its last argument.
            pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
                let mut from = Reader::new(payload);
                let (class, number) = (from.u16()?, from.u16()?);
                let method = match class {
                    $($class_number => $class::read(number, &mut from).map(Self::$class)?,)*
                    class => return Err(DecodeError::UnknownMethod { class, method: number }),
                };
                from.finish()?;
                Ok(method)
            }

            /// Appends the encoded method, without a frame.
            pub fn write(&self, out: &mut BytesMut) {
                let to = &mut Writer::new(out);
                match self {
                    $(Self::$class(method) => method.write(to),)*
                }
            }

            /// Appends the method as a frame of this channel.
            pub fn write_frame(&self, channel: u16, out: &mut BytesMut) {
                with_frame(FrameKind::Method, channel, out, |out| self.write(out));
            }

            /// Returns class and method as `basic.Ack`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$class(method) => method.name(),)*
                }
            }

            /// Returns the numbers of class and method.
            #[must_use]
            pub fn numbers(&self) -> (u16, u16) {
                match self {
                    $(Self::$class(method) => method.numbers(),)*
                }
            }
        }
    };
}
