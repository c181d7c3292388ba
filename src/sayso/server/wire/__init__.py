"""HTTP itself: bodies in and out, errors as answers, and the document that describes them."""
