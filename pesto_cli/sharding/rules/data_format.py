"""The axis of the channels in images, by `data_format`."""

from pesto_cli.data.specs import OpSpec

BATCH = 0
_LAST, _SECOND = frozenset({"NHWC", "NDHWC"}), frozenset({"NCHW", "NCDHW"})


def channel_axis(spec: OpSpec, rank: int) -> int | None:
    """Return the axis of the channels of an image; None if the format packs them (NCHW_VECT_C).

    rank: of the image, with batch and channels. Images of ops without a format have them last.
    """
    data_format = spec.attribute.get("data_format", "NHWC")
    if data_format in _LAST:
        return rank - 1
    return 1 if data_format in _SECOND else None
