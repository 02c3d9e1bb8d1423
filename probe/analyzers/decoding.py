"""How well a linear decoder reads a label from a whole layer, beside a control task."""

from typing import Any

import numpy as np
import numpy.typing as npt

from .runs import Numbers

FOLDS = 5
CONTROLS = 5


def decoding(values: Numbers, label: npt.NDArray[Any], groups: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Cross-validated score of a linear decoder of the label from all units, and its mean score for the control task.

    The decoder is ridge regression on standardised values (for classes one against the rest, weighted so that each
    class counts the same). The score is balanced accuracy for classes, R^2 for numbers. Folds are whole groups (a
    sequence, or a stretch of one), so that no step is told from its neighbour. The control task (Hewitt and Liang
    2019) has the same labels, shifted circularly by 5 offsets spread over the steps: it keeps their frequencies and
    runs, and what is decoded beyond it is due to the values.

    Parameters
    ----------
    values : (step, unit), finite.
    label : (step,), classes as int64 or numbers as float64.
    groups : (step,), which steps stay together.

    References
    ----------
    J. Hewitt, P. Liang (2019). Designing and Interpreting Probes with Control Tasks. arXiv:1909.03368.
    """
    offsets = np.linspace(0, len(label), CONTROLS + 2)[1:-1].astype(int)
    controls = [_score(values, np.roll(label, offset), groups) for offset in offsets]
    return _score(values, label, groups), float(np.mean(controls))


def _score(values: Numbers, label: npt.NDArray[Any], groups: npt.NDArray[np.int64]) -> float:
    try:
        from sklearn.linear_model import Ridge, RidgeClassifier
        from sklearn.metrics import balanced_accuracy_score, r2_score
        from sklearn.model_selection import GroupKFold
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise ImportError(
            "Decoding needs scikit-learn, which is not installed. Run pip install 'gatescope[stats]'."
        ) from error
    classes = label.dtype.kind != "f"
    predicted = np.empty_like(label)
    for train, test in GroupKFold(FOLDS).split(values, label, groups):
        decoder = make_pipeline(StandardScaler(), RidgeClassifier(class_weight="balanced") if classes else Ridge())
        if classes and len(np.unique(label[train])) < 2:
            predicted[test] = label[train][0]
        else:
            predicted[test] = decoder.fit(values[train], label[train]).predict(values[test])
    # over classes that occur; sklearn warns of predicted classes that do not
    return float(balanced_accuracy_score(label, predicted) if classes else r2_score(label, predicted))


def groups_of(sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Groups for the folds: the sequences, or where there are fewer than 10, ten stretches of the steps.

    >>> groups_of(np.zeros(20, dtype=np.int64)).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]
    """
    if len(np.unique(sequences)) >= 2 * FOLDS:
        return sequences
    return np.arange(len(sequences)) * 2 * FOLDS // max(1, len(sequences))
