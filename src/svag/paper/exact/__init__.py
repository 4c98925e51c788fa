"""Problems whose laws are known without sampling, and the machinery that measures weak order on them."""
