"""Fair conformal classification for groups nobody named."""

from fareg._validation import FaregError, FaregWarning

__all__ = ["FaregError", "FaregWarning"]
