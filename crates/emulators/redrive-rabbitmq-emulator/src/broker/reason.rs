use super::events::DropReason;

/// Why a message died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Rejected,
    Expired,
    MaxLength,
    DeliveryLimit,
}

impl Reason {
    /// Returns the text in `x-death`.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
        }
    }

    /// Returns why it is dropped if it goes nowhere.
    pub(crate) fn dropped(self) -> DropReason {
        match self {
            Self::Rejected => DropReason::Rejected,
            Self::Expired => DropReason::Expired,
            Self::MaxLength => DropReason::MaxLength,
            Self::DeliveryLimit => DropReason::DeliveryLimit,
        }
    }
}
