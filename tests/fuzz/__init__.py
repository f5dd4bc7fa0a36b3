"""Random changes to valid inputs; every command must end with a message and an exit code.

    make fuzz                                          # all cases
    PYTHONPATH=tests python -m fuzz --only 137         # repeat one case by its number

A process that has loaded TensorFlow is forked for every case (`forked`), so that a case takes
tenths of a second and cases do not affect each other.
"""
