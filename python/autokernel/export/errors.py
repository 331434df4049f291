"""What can go wrong in an export, for the person who asked."""


class ExportError(Exception):
    """The text says what failed, `what_to_do` what to do next."""

    def __init__(self, message, what_to_do=""):
        super().__init__(message)
        self.what_to_do = what_to_do
